"""The way of the bytes: a `StampedRequest` goes up, the answer comes down as it comes.

`leg.py` is one connection to an engine, `pool.py` keeps legs between requests, `exchange.py` is one request on its leg,
`downstream.py` is one client's connection and `answer.py` what is written to it. `sse.py` watches a stream without
touching it, `endings.py` ends one honestly, `wire.py` tells what the other side has not taken yet. Bytes are pushed
from the engine's read straight into the client's write: one task waits per request, for its end only.

Where there are several replicas, `choice.py` orders them: `rendezvous.py` says where a prompt is at home, `outliers.py`
who is left alone for a while, after what `findings.py` makes of each end.
"""

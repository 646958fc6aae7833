"""What happened, told to operators: one record a request, and spans, metrics and log lines made of it.

Start at `record.py` (what the gate says of one request, closed exactly once), then `names.py` (every name that leaves
the process). `metrics.py`, `logs.py` and `telemetry.py` are the three observers that a `Recorder` tells; each has a
bound on what it holds and none of them waits for anybody, so a dead collector, a stalled terminal or a missing scraper
changes nothing for a caller. No token, salt, subject or prompt text is in anything made here.
"""

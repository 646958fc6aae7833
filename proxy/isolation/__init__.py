"""Where the border runs: a scope has a unit, a unit has a salt. Pure: no room here does I/O.

Start at `unit.py` (the six kinds of border), then `scope.py` (which of them one request has), `sharing.py` (why, and
who shares it), `ring.py` (epochs and keys), `salt.py` (the value that is stamped). `borders.md` says what suits whom.
"""

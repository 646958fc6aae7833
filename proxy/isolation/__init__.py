"""Where the border runs: a scope has a unit, a unit has a salt. Pure: no room here does I/O.

Start at `unit.py` (the six kinds of border), then `scope.py` (which of them one request has), `sharing.py` (why, and
who shares it), `ring.py` (epochs and keys), `salt.py` (the value that is stamped). `borders.md` says what suits whom.
`narrowing.py` gives a request a narrower border for what is in it: `detectors.py` finds words and patterns in a text
and in its form after `folding.py`; `personal_data.py` and `secrets_in_text.py` are the named sets, with
`check_digits.py`.
"""

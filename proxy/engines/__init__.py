"""What an engine kind can do, and the way from a client's body to a `StampedRequest`. Pure: no I/O here.

Start at `body.py` (a client's bytes become a `ClientRequest` or a refusal), then `stamp.py` (a `ClientRequest` and a
salt become the one thing that the upstream leg takes). `profile.py` is the table of endpoints and fields, `rules.py`
says what the entries of that table do, `members.py` opens JSON objects without losing a doubled member. `usage.py`
reads answers.
"""

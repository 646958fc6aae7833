"""What an engine kind can do, and the way from a client's body to a `StampedRequest`. Pure: no I/O here.

Start at `body.py` (a client's bytes become a `ClientRequest` or a refusal), then `stamp.py` (a `ClientRequest` and a
salt become the one thing that the upstream leg takes). The tables of endpoints and fields are in `kinds/`, one file for
each kind, in the words of `profile.py`; `forbidden.py`, `forms.py` and `content.py` hold what kinds share, `rules.py`
says what the entries of a table do, `members.py` opens JSON objects without losing a doubled member, `media.py` says
which images may come and makes their identities, `remote.py` by which addresses they may be named in their place: until
they are fetched, the request is an `UnfetchedRequest`, which nothing stamps. `usage.py` reads answers. `fields.md`
shows all tables to an auditor.
"""

"""What a caller may act for: workspaces, projects and their members, kept in Redis or in a file.

Pure: `model.py` (the directory as values), `membership.py` (the scope of one request), `changes.py` (what a command
changes), `removal.py` (which units a removal raises), `rotation.py` (what becomes of keys and epochs), `records.py`
and `snapshot.py` (from what a store holds to what a request asks). With I/O: `store.py` (the Protocol),
`redis_store.py` and `file_store.py` (the two places, chosen by `connect.py`), `view.py` (each worker's live view).
`redis-layout.md` is the layout for those who write it themselves.
"""

"""Measurements and long runs outside CI: `make bench`, `make soak`, `make sequence`.

`__main__` is the benchmark: `cases` says what is measured, `proxies` who beside us, `rounds` how a figure comes about,
`report` how it is told. `soak` and `sequence` are whole runs with a verdict.
"""

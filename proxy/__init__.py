"""saltgate's gate: from a login to a salted stream. Start at `gateway.py`, the way of one request.

    routes      what a request asks for, and which scope it names
    identity    who is calling
    directory   what he may act for
    admission   both of these together: who may go on, and whether that still holds
    isolation   which border that has, and the border's salt
    engines     what an engine may be sent, rebuilt from an allowlist and stamped
    fetching    the images that a request names by their address
    capacity    how many requests an engine is sent at once, and whose turn is next
    scanner     whether the request's content asks for a narrower border
    accounting  whether the audit will tell of it
    entry       the way to a place at an engine, through both of them
    relay       the bytes up, and the answer down as it comes
    account     what people see and change of their own
    assurance   what is proven of the engines
    reception   the parts of a worker that know callers, and the pages that people see
    entrance    whatever comes to the public listener, before anybody is known
    peers       where a client is, and whose word counts for that
    pages       what a browser loads of the admin listener, before any data
    listening   how connections come to a worker from the socket that all share
    observers   who is told of each request: metrics, logs, traces, audit, pages
    configured  settings → the parts that hold no connection yet
    gate        what a worker is while it serves;  states  what its parts are like now
    app         settings → one worker's gate;  worker, supervisor, server  the processes around it;  cli  the commands
    demo        everything embedded, to see what it is for

Rooms only look down (`[tool.importlinter]` in pyproject.toml). What decides is pure; what does I/O decides little.
"""

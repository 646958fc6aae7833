"""What happened lately, kept in bounded memory by the supervisor for the administrators' pages.

    summary     one finished request, as a worker tells it
    told        the worker's side: an observer of records, emptied every moment
    tally       the sums of some requests, and the histogram of their first tokens
    timeline    the tallies of one scope and model by time, fine for the last minutes and coarse for the last days
    speed       how long an engine takes for a prompt token, to say what was saved
    recent      single requests, the last of all and the last of each scope
    history     all of it together, within its bounds
    answers     what the pages are given (JSON)
    figures     from the history to these answers

Nothing here does I/O, and times are handed in. No prompt, salt, token or subject comes here: a summary has none.
"""

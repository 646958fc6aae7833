"""The process that starts the workers and answers the admin listener for all of them. Start at `supervisor.py`.

    listener    the public address, bound once
    worker      one worker process, started anew whenever it dies
    generation  the workers of one configuration, and how they end
    reload      a configuration read anew, by the code that is installed now
    admin       health, and the way to metrics;  scrape  their page, piece by piece;  metering  what stands on it
    otlp        metrics to a collector
    terminal    whether a SIGHUP means that the terminal was closed
    supervisor  generations one after the other, and what signals mean

It knows no settings, only a `Plan` of them, and imports none of the gate's parts. Its own code is that of its start: a
reload brings new code to the workers only.
"""

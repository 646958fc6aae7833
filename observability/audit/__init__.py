"""Who was let in to what, in files that nobody without the key can change unnoticed. Start at `chain.py`, the rule.

    chain         a line, its place and its MAC: how one is sealed, and how it is read. Pure
    entries       what a line tells of a request, and of an act. Pure
    subjects      how a person is named in it. Pure
    digests       which settings a saltgate runs with, and which changed, without saying what they are
    files         the directory: chains, their segments, who still writes
    journal       what is running now, in memory that outlives the process
    segments      one chain on disk: written in groups, synced, sealed, begun anew
    gap           what was lost, until a line has told it. Pure
    lost          what a command could not tell before it ended
    recovery      what a process that was killed left behind
    housekeeping  what a chain says of others: witness, and what retention removed
    writer        the thread that writes, and what happens when it cannot
    export        the same lines to a collector, which may lose them
    acts          a line before an act, and one after it
    audit         what the gate calls; `start` makes it of the settings
    reading       a directory, line by line in the order of time, whatever its size
    verifying     whether anything is missing or was changed: `facts` of chains, `chain_reading` of each

`../audit.md` is for those who read what is written here.
"""

"""What happened, told to operators and auditors: one record a request, and everything else made of it.

Start at `record.py` (what the gate says of one request, closed exactly once), then `definitions.md` (what each measure
means) and `names.py` (every name that leaves the process). `recorder.py` tells the observers:

    metrics     what is counted;  totals, exposition, otlp_metrics  the sums of all workers, and how they are told
    telemetry   spans, made of the record at its end;  spans, genai  their names
    logs        a line for each request;  sink  how it never waits for its reader
    audit       a record for each decision, in chains that nobody can change unnoticed (`audit.md`)
    history     what the pages show

Each has a bound on what it holds and none of them waits for anybody, so a dead collector, a stalled terminal or a
missing scraper changes nothing for a caller; only the audit may say that nothing more is to be sent. No token, salt,
key or prompt text is in anything made here.
"""

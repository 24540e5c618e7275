"""``crystal demo``: everything at work on this machine, with real processes, in throw-away homes."""

"""Commands: a device asks another one to do something, and is told how it went.

::

    asker    ask -----> its own stream --(relay)--> target: RECEIVED --claim--> STARTED --> DONE, FAILED
    asker  <----------- reports in the target's stream, the first of them being the claim itself

A request runs at most once. It is taken in once, by its id. It runs only if this process created its claim, under a name
that all copies of the target derive in the same way; that it started is on disk before it runs. What may have been begun
elsewhere is reported as unknown, never run.
"""

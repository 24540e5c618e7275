"""Commands: a device asks another one to do something, and is told how it went.

::

    asker    ask -----> its own stream --(relay)--> target: RECEIVED --claim--> STARTED --> DONE, FAILED
    asker  <----------- reports in the target's stream, the first of them being the claim itself

Once only: a request is taken in once, by its id; it runs only when a claim under a name that all copies of the target derive
alike was created by this very process; that it started is on disk before it runs. What could not be kept apart from a run that
was begun elsewhere is told as unknown, never run.
"""

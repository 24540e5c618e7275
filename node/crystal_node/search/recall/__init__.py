"""Recall: the memories and messages put before an agent when its session starts and when its person asks something.

Hooks call `crystal recall --hook`. The background service answers them; without one the memory is searched by words alone,
within the same time. A hook never blocks and never fails: what could not be looked up is said in one line.
"""

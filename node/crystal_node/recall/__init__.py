"""Recall: what is remembered, put before an agent when its session starts and when its person asks something.

Hooks call `crystal recall --hook`. The running agent answers them; without one the memory is searched by words alone, within
the same time. A hook never blocks and never fails: what could not be looked up is said in a line.
"""

"""Recall: what is remembered, put before an agent when its session starts and when its person asks something.

| module | what it is |
|---|---|
| `hook` | what a hook is given and gives back |
| `quick` | asking the agent, with as little of Python as can be |
| `agents`, `here` | the two who answer: the running agent, and without one this process, by words alone |
| `recalling` | what is worth recalling |
| `telling` | the same as text, each record marked as one |
| `book` | `state/recall.db`: what a session was given |

Hooks call `crystal recall --hook`. The running agent answers them; without one the memory is searched by words alone, within
the same time. A hook never blocks and never fails: what could not be looked up is said in a line.
"""

"""Finding: searching and reading the memory of this device, in one form for everybody who asks.

The command line, the agent's socket, the MCP server, the gateway and the recall hooks ask with the requests of ``documents``
and are given its answers; ``Finder`` answers from this device's own disk.

| module | what it is |
|---|---|
| `documents` | requests and answers |
| `finder`, `showing` | ``Finding``, the port, and ``Finder``, which searches and shows here |
| `asking`, `serving`, `wire` | the running agent answers in its place, over a socket of its owner's |
| `keeping` | ``Keeper``: one opened memory for a server that lives for weeks |
| `deep`, `deepening`, `deepcache` | a language model's part: which one, its run, its answers for a week |

A query or a text stands in no log and no error. Importing ``documents`` or ``asking`` loads neither NumPy nor a model.
"""

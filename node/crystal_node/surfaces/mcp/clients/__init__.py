"""Crystal's entry among the MCP servers of the agents on this machine: put in, looked at, and taken out again.

| module | what it holds |
|---|---|
| `places` | which programs there are, and where each keeps its servers, as their makers document it |
| `entries` | what an entry is, and which ones are ours |
| `jsonform`, `tomlform` | an entry in and out of a file, everything else to the byte as it was |
| `installing` | all of it, for one home |
"""

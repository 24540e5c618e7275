"""Crystal's entry among the MCP servers of the agents on this machine: install, status, uninstall.

| module | what it holds |
|---|---|
| `places` | which programs there are, and where each keeps its servers, as their makers document it |
| `entries` | what an entry is, and which ones are ours |
| `json_form`, `toml_form` | an entry in and out of a file, with all else unchanged to the byte |
| `installation` | all of it, for one home |
"""

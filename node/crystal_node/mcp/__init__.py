"""The memory as an MCP server: what agents that speak the Model Context Protocol can ask of it, and may have it do.

| module | what it holds |
|---|---|
| `keeping` | what a server that lives for days keeps open, and when it lets go |
| `tools` | the tools: names, descriptions, hints, and what each one does |
| `arguments`, `answers` | what they are given and what they answer, as types that become JSON schemas |
| `schemas` | those schemas, and strict reading of what a model sent |
| `rendering` | recorded text, fenced off as the data that it is |
| `server` | the protocol's requests, answered; errors become sentences |
| `stdio` | one client, over standard input and output |

Nothing outside this package and its command imports the SDK: it takes most of a second.
"""

"""The memory as an MCP server: what agents that speak the Model Context Protocol can ask of it, and may have it do.

| module | what it holds |
|---|---|
| `calls`, `agreeing` | what a tool is given beside its arguments; asking a person before what cannot be undone |
| `tools` | the tools: names, descriptions, hints |
| `reading`, `writing`, `sourcing` | what each of them does |
| `arguments`, `answers` | what they are given and what they answer, as types that become JSON schemas |
| `schemas` | those schemas, and strict reading of what a model sent |
| `rendering` | recorded text, fenced off as the data that it is |
| `resources`, `prompts` | the memory as things to attach, and what a person picks to have it used well |
| `listing`, `failing` | what the server says of itself; errors as sentences |
| `server` | the protocol's requests, answered |
| `stdio`, `http` | one client over standard input and output; several over HTTP |
| `clients` | the entry among the servers of the clients on this machine |

Nothing outside this package and its command imports the SDK: it takes most of a second.
"""

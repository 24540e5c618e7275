"""The memory as an MCP server, for agents that speak the Model Context Protocol.

| module | what it holds |
|---|---|
| `calls`, `agreement` | what a tool is given beside its arguments; a person's consent to what cannot be undone |
| `tools` | the tools: names, descriptions, hints |
| `search_tools`, `memory_tools`, `source_tools` | what each of them does |
| `arguments`, `answers` | their arguments and structured answers, as types that become JSON schemas |
| `schemas` | those schemas, and strict reading of what a model sent |
| `search_answer`, `open_answer`, `answer_text` | answers as text: of a search, of an opened text, of the others |
| `fence`, `budget` | recorded text fenced off as data; room for it within an answer's tokens |
| `resources`, `prompts` | parts of the memory to attach; prompts that a person picks |
| `catalogue` | instructions, tools, resources and prompts in the protocol's form |
| `server` | answers the protocol's requests; errors as sentences |
| `stdio`, `http` | one client over standard input and output; several over HTTP |
| `clients` | Crystal's entry in the configuration of the clients on this machine |

Only this package and its command import the SDK: it takes most of a second.
"""

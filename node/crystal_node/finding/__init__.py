"""Finding: searching and reading the memory of this device, in one form for everybody who asks.

The command line, the agent's socket, the MCP server, the gateway and the recall hooks ask with the requests of ``documents``
and are given its answers; ``Finder`` answers from this device's own disk.
"""

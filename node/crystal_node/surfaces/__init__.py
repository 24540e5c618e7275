"""Where people and programs meet a device: the command line, MCP, the gateway, set-up and the demonstration."""

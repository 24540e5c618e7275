"""Language models: the port, its errors, prices of tokens. Providers are in `crystal_node.models.llm`."""

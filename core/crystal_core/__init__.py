"""Crystal's memory: schema, store, embeddings and search."""

"""Search in one memory: keywords and meaning, filters, ranking and snippets."""

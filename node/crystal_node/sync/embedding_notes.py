"""Names in the journal of notes on embedding. Apart from the embedder, so that status and doctor load no model."""

META_PROBLEM = "node.embedding-problem"
"""Why new texts get no vectors, in words; absent if they do."""
META_AGREED = "node.embedding-agreed"
"""The model whose cost the person has agreed to."""
META_UNAGREED = "node.embedding-unagreed"
"""The model that a backlog of texts waits for, because it costs money and nobody has agreed; absent otherwise."""

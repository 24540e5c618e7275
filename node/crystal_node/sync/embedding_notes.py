"""What the journal remembers of embedding, by its names there. Loads nothing: status and doctor read them, too."""

META_PROBLEM = "node.embedding-problem"
"""Why new texts have no vectors now, in words; nothing if they have."""
META_AGREED = "node.embedding-agreed"
"""The model for which the person has agreed to pay."""

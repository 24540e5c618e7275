"""The replicated state: rows, digest, acknowledgements, and the effect of operations on them."""

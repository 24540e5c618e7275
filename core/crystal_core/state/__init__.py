"""The replicated state of the memory: rows, their digest, acknowledgements, and how operations change them."""

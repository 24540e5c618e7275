"""Text to vectors: the port, and the embedder that ships with Crystal. See README.md."""

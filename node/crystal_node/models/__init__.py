"""Providers of embeddings and of language models."""

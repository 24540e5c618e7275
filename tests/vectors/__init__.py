"""Vectors of the byte formats, and what makes them."""

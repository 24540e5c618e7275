"""The Dream Weaver: what an agent lived through, read again in order and written down as journals, notes and memories."""

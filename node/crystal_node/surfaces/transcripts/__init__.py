"""A conversation written out, for people to keep, print or send."""

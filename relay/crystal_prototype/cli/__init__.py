"""The commands that deal with the prototype."""

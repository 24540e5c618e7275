"""The command line, and what a terminal shows of it."""

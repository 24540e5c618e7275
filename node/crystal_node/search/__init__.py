"""Searching, recall and memories, in one form for every surface. `README.md` beside this file has the modules and the rules."""

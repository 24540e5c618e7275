"""Search, memories and recall, in one form for every surface."""

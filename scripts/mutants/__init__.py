"""Mutation testing: small changes to the code, one at a time, each of which a test has to find (decision 0063)."""

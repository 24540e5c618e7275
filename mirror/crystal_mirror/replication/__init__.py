"""Following the mirror and writing it: pull, collect, publish, rebuild, claim."""

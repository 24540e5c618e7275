"""Fuzzing of every parser that reads foreign bytes: `make fuzz`, and a moment of each in `make test`."""

"""The real programs, in their pinned versions, with Crystal set up beside them: `make test-tools`."""

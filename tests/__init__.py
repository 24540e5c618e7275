"""Crystal's tests; tests/README.md says what lives where."""

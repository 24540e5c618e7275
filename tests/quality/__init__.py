"""What search finds may not become worse."""

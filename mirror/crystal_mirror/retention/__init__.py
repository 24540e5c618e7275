"""Retention: what the Core lets the relay delete, when, and what is said of it; decrees; forgets still in reach."""

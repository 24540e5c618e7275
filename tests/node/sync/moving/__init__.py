"""The Core moves to another device."""

"""The engine of deep search, with models in a few lines."""

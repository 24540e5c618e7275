"""Export, import, and what the published prototype left."""

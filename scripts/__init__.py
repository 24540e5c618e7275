"""Build-time scripts: never part of the product."""

"""The parsers, by folder of the product."""

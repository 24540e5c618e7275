"""Conversion of the prototype's home and databases to Crystal's."""

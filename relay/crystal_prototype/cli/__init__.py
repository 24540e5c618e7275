"""Commands for the prototype's devices, home and databases."""

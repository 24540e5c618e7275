"""The vault's devices as this one sees them: the list, names, rights, news, and what the relay is told of them."""

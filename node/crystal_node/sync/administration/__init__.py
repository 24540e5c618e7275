"""Changes to the vault's devices that are written to the device log: names, grants, keys, revocation, root rotation."""

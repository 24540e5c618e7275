"""The vault's devices as this one sees them: listing, naming, granting, revoking, and what the relay is told of it."""

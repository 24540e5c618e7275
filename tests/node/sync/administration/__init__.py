"""Changes to the devices of a vault: by `crystal devices`, by revocation, by a new root."""

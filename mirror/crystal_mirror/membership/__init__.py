"""One device's membership: who signs, who belongs, what devices tell each other, and the administration of the vault."""

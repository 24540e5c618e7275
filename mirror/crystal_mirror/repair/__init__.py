"""Comparing the relay with what this device has, repairing what is missing, recovery of a relay that lost the vault."""

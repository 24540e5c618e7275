"""Repair: what the relay holds is read and compared; what this device has is put back."""

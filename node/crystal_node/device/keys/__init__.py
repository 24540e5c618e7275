"""This device's secrets: where they are, how they move, the passphrase, and which root is in force."""

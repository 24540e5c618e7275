"""Commands between the devices of a vault, as this machine sends, receives, runs and shows them."""

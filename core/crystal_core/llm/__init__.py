"""Language models as the memory uses them: the port, what can go wrong, what a token costs. Providers are the device's."""

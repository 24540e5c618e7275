"""What every wing needs: the home, settings, locks, clocks, errors and words. Imports nothing else of the node."""

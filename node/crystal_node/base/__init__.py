"""What every wing needs: the home, settings, locks, clocks, errors and wording. Imports no other wing."""

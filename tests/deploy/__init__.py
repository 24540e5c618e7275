"""What `deploy/` gives to people, tried as far as one machine can."""

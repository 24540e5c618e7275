"""What tests of several folders share: relays to run, requests written by hand, servers that misbehave."""

"""`python -m crystal_relay`: the same as `crystal-relay`."""

from crystal_relay.cli import main

if __name__ == "__main__":
    main()

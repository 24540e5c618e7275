"""The fixtures of the device's tests."""

from tests.node.conftest import cheap_passphrases, machine, relay, vault

__all__ = ["cheap_passphrases", "machine", "relay", "vault"]

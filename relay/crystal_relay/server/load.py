"""How much of unfinished bodies may be in memory: in all, and of one vault.

A small body is gathered before the store is asked. Most arrive with their head and never count here. A client that sends
slowly holds what it has sent; without a bound many such clients would hold all memory, and without a share for each vault
one vault's devices could keep out all others.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from crystal_relay.errors import Busy
from crystal_relay.limits import MIB

GATHERED_BYTES_MAX = 128 * MIB
GATHERED_BYTES_OF_VAULT_MAX = 16 * MIB


class Load:
    """One for each relay process."""

    def __init__(
        self, *, bytes_max: int = GATHERED_BYTES_MAX, bytes_of_vault_max: int = GATHERED_BYTES_OF_VAULT_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._bytes_of_vault_max = bytes_of_vault_max
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()

    @property
    def gathered_bytes(self) -> int:
        """Promised to bodies that are arriving."""
        return self._bytes

    @contextmanager
    def gathering(self, vault: str, size: int) -> Generator[None]:
        """Room for a body of a vault while it arrives. Raises Busy."""
        if self._bytes + size > self._bytes_max or self._bytes_of[vault] + size > self._bytes_of_vault_max:
            raise Busy("the relay is receiving as much as it can hold")
        self._bytes += size
        self._bytes_of[vault] += size
        try:
            yield
        finally:
            self._bytes -= size
            self._bytes_of[vault] -= size
            if not self._bytes_of[vault]:
                del self._bytes_of[vault]

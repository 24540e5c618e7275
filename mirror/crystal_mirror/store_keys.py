"""Keys of a vault's objects in the store: opaque, and zero-padded so that listing order is log order."""

from dataclasses import dataclass

_SLOT_DIGITS = 16
_EPOCH_DIGITS = 10


def slot_name(number: int) -> str:
    """A slot as its last key segment.

    Raises:
        ValueError: negative or beyond 16 digits.
    """
    if not 0 <= number < 10**_SLOT_DIGITS:
        raise ValueError(f"slot {number} is out of range")
    return f"{number:0{_SLOT_DIGITS}d}"


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of one vault's objects."""

    vault: bytes

    @property
    def root(self) -> str:
        return f"v/{self.vault.hex()}/"

    @property
    def log_prefix(self) -> str:
        return f"{self.root}devlog/"

    def log(self, slot: int) -> str:  # §9.1-1
        return self.log_prefix + slot_name(slot)

    @property
    def conversations_prefix(self) -> str:
        return f"{self.root}conversations/"

    def stream_prefix(self, device: bytes, incarnation: bytes) -> str:
        return f"{self.conversations_prefix}{device.hex()}.{incarnation.hex()}/"

    def beyond_stream(self, device: bytes, incarnation: bytes) -> str:
        """A key that sorts after every slot of the stream. Slots are digits, and a store accepts this character in a key."""
        return self.stream_prefix(device, incarnation) + "z"

    def conversation(self, device: bytes, incarnation: bytes, sequence: int) -> str:
        return self.stream_prefix(device, incarnation) + slot_name(sequence)

    @property
    def mirror_prefix(self) -> str:
        return f"{self.root}mirror/"

    def epoch_prefix(self, epoch: int) -> str:
        return f"{self.mirror_prefix}{epoch:0{_EPOCH_DIGITS}d}/"

    def mirror(self, epoch: int, sequence: int) -> str:  # §11.1-1
        return self.epoch_prefix(epoch) + slot_name(sequence)

    @property
    def blob_prefix(self) -> str:
        return f"{self.root}blob/"

    def blob(self, name: bytes) -> str:
        """``name`` is the keyed hash of its content (``VaultSecret.blob_name``)."""
        return self.blob_prefix + name.hex()

    @property
    def commands_prefix(self) -> str:
        return f"{self.root}commands/"

    def command_prefix(self, device: bytes, incarnation: bytes) -> str:
        return f"{self.commands_prefix}{device.hex()}.{incarnation.hex()}/"

    def command(self, device: bytes, incarnation: bytes, sequence: int) -> str:
        return self.command_prefix(device, incarnation) + slot_name(sequence)

    @property
    def cursor_prefix(self) -> str:
        return f"{self.root}cursor/"

    def cursor(self, device: bytes) -> str:
        return self.cursor_prefix + device.hex()

    def parse_stream(self, key: str) -> tuple[bytes, bytes, int] | None:
        """Device, incarnation and sequence of a conversation key; None for any other key (a relay may list junk)."""
        parsed = _parse_stream(self.conversations_prefix, key)
        return parsed if parsed is not None and self.conversation(*parsed) == key else None

    def parse_command(self, key: str) -> tuple[bytes, bytes, int] | None:
        """Like ``parse_stream``, for a key in a stream of commands."""
        parsed = _parse_stream(self.commands_prefix, key)
        return parsed if parsed is not None and self.command(*parsed) == key else None

    @staticmethod
    def parse_slot(prefix: str, key: str) -> int | None:
        """The slot number of a key under ``prefix``, or None if it is not one."""
        name = key[len(prefix) :]
        if not key.startswith(prefix) or len(name) != _SLOT_DIGITS or not (name.isascii() and name.isdigit()):
            return None
        return int(name)


def _parse_stream(prefix: str, key: str) -> tuple[bytes, bytes, int] | None:
    if not key.startswith(prefix):
        return None
    stream, slash, slot = key[len(prefix) :].partition("/")
    device, dot, incarnation = stream.partition(".")
    if not slash or not dot or len(device) != 32 or len(incarnation) != 16 or len(slot) != _SLOT_DIGITS:
        return None
    if not (slot.isascii() and slot.isdigit()):
        return None
    try:
        return bytes.fromhex(device), bytes.fromhex(incarnation), int(slot)
    except ValueError:
        return None

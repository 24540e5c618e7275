"""UUIDs as texts and as 16 bytes: most tools name their messages by them."""

UUID_BYTES = 16
_CHARS = 36


def packed_uuid(text: str) -> bytes | None:
    """The bytes of a UUID that `uuid_text` would write just so; None for any other text."""
    if len(text) != _CHARS:
        return None
    try:
        packed = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    return packed if len(packed) == UUID_BYTES and uuid_text(packed) == text else None


def uuid_text(packed: bytes) -> str:
    """The text in lower case, as RFC 9562 writes it. ``packed`` has 16 bytes."""
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

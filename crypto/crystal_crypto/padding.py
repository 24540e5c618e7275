"""Padmé padding: lengths are rounded up so that they tell little (Nikitin et al., "Reducing Metadata Leakage from
Encrypted Files and Communication with PURBs", 2019).

Rules: never more than 12 % is added above the floor of 256 bytes, O(log log n) bits of the length remain visible, and
padding consists of zero bytes that are encrypted with the content.
"""

from crystal_crypto.limits import PADDED_BYTES_MIN


def padded_length(length: int) -> int:
    """The smallest permitted length that is at least `length` (bytes, not negative), and at least 256."""
    if length <= PADDED_BYTES_MIN:
        return PADDED_BYTES_MIN
    exponent = length.bit_length() - 1
    mask = (1 << (exponent - exponent.bit_length())) - 1
    return (length + mask) & ~mask


def largest_content(room: int) -> int:
    """The greatest length whose padded length is at most `room` bytes; 0 if not even the floor fits."""
    if room < PADDED_BYTES_MIN:
        return 0
    exponent = room.bit_length() - 1
    return room & ~((1 << (exponent - exponent.bit_length())) - 1)

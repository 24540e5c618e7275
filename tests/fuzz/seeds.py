"""Inputs to begin with: the vectors, and shapes that break readers of nested formats."""

from collections.abc import Iterable, Iterator

from tests.vectors.vectorfile import read_folder, subject

DEEP = 1500
"""Levels: more than any reader may take on its stack."""


def vectors(folder: str, bytes_max: int) -> list[bytes]:
    """What the vectors of a folder are about, good and bad, as long as it is not too long to be changed usefully."""
    return [data for vector in read_folder(folder) if 0 < len(data := subject(vector)) <= bytes_max]


def with_nested(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Each MessagePack array, and the same with one element more, of arrays in arrays."""
    deep = b"\x91" * DEEP + b"\xc0"
    yield deep
    for data in packed:
        yield data
        if 0x90 <= data[0] < 0x9F:
            yield bytes([data[0] + 1]) + data[1:] + deep
        elif data[0] == 0xDC:
            count = int.from_bytes(data[1:3], "big") + 1
            yield data[:1] + count.to_bytes(2, "big") + data[3:] + deep


def with_nested_json(documents: Iterable[bytes]) -> Iterator[bytes]:
    """Each JSON document, the same with a field more, of arrays in arrays, and numbers and keys that readers trip over."""
    yield b"[" * DEEP
    yield b'{"a":' * 1300
    yield b"1" * DEEP
    yield b'{"a": 1e999, "b": -0.0, "c": "\\ud800", "d": NaN}'
    for data in documents:
        yield data
        if data[:1] == b"{" and len(data) > 2:
            yield b'{"deep": ' + b"[" * DEEP + b"]" * DEEP + b", " + data[1:]

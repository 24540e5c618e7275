"""The child process of ``read_ahead``: reads transcripts, part by part. It writes to no file; only SQLite may make a ``-shm``
beside another program's database (``database_file``).

Its standard input brings the settings, then requests for one transcript after the other. Its standard output has the parts of
each, one for each question. It ends with its parent: the pipe closes however the parent ends.
"""

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from crystal_node.base.decoding import from_msgpack
from crystal_node.base.process_memory import keep_others_out
from crystal_node.base.settings import Settings
from crystal_node.capture.adapter import Adapter
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.read_ahead import ENDED, GO_ON, HEAD, PART
from crystal_node.capture.reading import ReadPart, ReadRequest, read_part
from crystal_node.capture.tools import all_adapters


def main() -> None:
    keep_others_out()
    settings: Settings = pickle.loads(_received() or b"")  # noqa: S301  from the process that started this one
    adapters = {each.name: each for each in all_adapters(settings, settings.person_home)}
    message = _received()
    while message is not None:
        request = from_msgpack(message, ReadRequest)
        for part in _parts(settings, adapters[request.tool], request):
            _answer(PART, msgspec.msgpack.encode(part))
            if (message := _received()) != GO_ON:
                break
        else:
            _answer(ENDED, b"")
            message = _received()


def _parts(settings: Settings, adapter: Adapter, request: ReadRequest) -> Iterator[ReadPart]:
    """All parts of one transcript, up to an error of reading: the parent reads that part itself, and reports the error."""
    more = True
    while more:
        try:
            excluded = Exclusions.read(settings.home.root, settings.person_home).all
            reading = read_part(adapter, request)
        except OSError:
            return
        yield ReadPart.of(reading, excluded)
        more, request = reading.more, request.after(reading)


def _received() -> bytes | None:
    """The next message; None at the end."""
    head = sys.stdin.buffer.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    _, length = HEAD.unpack(head)
    data = sys.stdin.buffer.read(length)
    return data if len(data) == length else None


def _answer(kind: bytes, data: bytes) -> None:
    sys.stdout.buffer.write(HEAD.pack(kind, len(data)))
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main()
    os._exit(0)

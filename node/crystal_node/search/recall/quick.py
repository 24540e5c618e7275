"""Asking the agent to recall, with as little of Python as can be: a hook runs at every prompt.

Speaks what ``finding.wire`` describes, without loading it: a test holds both against each other.
"""

import os
import socket
import time

from crystal_node.base.local_api import reached

SECONDS_MAX = 0.24
"""Until an answer is there; the start of Python comes on top."""
INPUT_BYTES_MAX = 1024 * 1024
_ANSWER_BYTES_MAX = 64 * 1024


def asked(home: str, data: bytes) -> bytes | None:
    """What the agent of that home says; None if it did not in time.

    Raises OSError, ValueError: there is no agent, or none that understands.
    """
    path = os.path.join(home, "state", "agent", "find.sock")  # noqa: PTH118
    if not hasattr(socket, "AF_UNIX"):
        raise ValueError("no socket")
    deadline = time.monotonic() + SECONDS_MAX
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(SECONDS_MAX)
        with reached(path) as name:
            if name is None:
                raise ValueError("no socket")
            line.connect(name)
        line.sendall(b"crystal-find/1 recall %d\n" % len(data) + data)
        answer = b""
        while len(answer) <= _ANSWER_BYTES_MAX and not _whole(answer):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            line.settimeout(left)
            try:
                came = line.recv(65536)
            except TimeoutError:
                return None
            if not came:
                break
            answer += came
    if not _whole(answer):
        raise ValueError("not understood")
    return answer.partition(b"\n")[2]


def _whole(answer: bytes) -> bool:
    """Whether that is all of an answer: what came in time counts, though the end of the line did not."""
    header, _, body = answer.partition(b"\n")
    return header == b"crystal-find/1 ok %d" % len(body)

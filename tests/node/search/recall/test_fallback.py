"""A hook's answer without the background service is printed whole, or not at all, whoever ends the process."""

import io
import os
import sys
import threading

import pytest

from crystal_node.search.recall import fallback
from crystal_node.search.recall.hook import HookEvent, Recalled, output

FOUND = Recalled("Nine tries it is.", "Crystal loaded 1 record.")


class SlowOutput(io.BytesIO):
    """Takes the first half, and the rest only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.half = threading.Event()
        self.go_on = threading.Event()

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        super().write(data[: len(data) // 2])
        self.half.set()
        assert self.go_on.wait(20)
        super().write(data[len(data) // 2 :])
        return len(data)


@pytest.mark.parametrize("late", [True, False])
def test_the_process_ends_behind_a_whole_answer(monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    out = SlowOutput()
    ended: list[bytes] = []
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    monkeypatch.setattr(os, "_exit", lambda _: ended.append(out.getvalue()))
    answer = fallback._Answer(HookEvent.PROMPT)
    other = threading.Thread(target=answer.too_late)
    first = threading.Thread(target=(answer.too_late if late else lambda: answer.tell(FOUND)))
    first.start()
    assert out.half.wait(20)
    second = threading.Thread(target=lambda: answer.tell(FOUND)) if late else other
    second.start()
    second.join(0.2)
    assert second.is_alive(), "it waits for what is being printed"
    assert ended == []
    out.go_on.set()
    first.join(20)
    second.join(20)
    (whole,) = ended
    assert whole == out.getvalue()
    assert (whole == output(HookEvent.PROMPT, FOUND)) is not late
    assert whole.count(b"hookSpecificOutput") <= 1

"""A transcript through a random history: grown in bits, truncated, replaced, moved away and back, stepped over, read by a
process that dies before it commits. What was completely written comes through once; what was private never."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crystal_node.capture import line_reader
from crystal_node.capture.line_reader import FileState
from tests.node.capture.transcripts import Tool, line, user

PASS_BYTES = 500


class Transcript(RuleBasedStateMachine):
    """``written`` is what the file holds completely, as numbers of messages; ``half`` what is written of the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.tool = Tool(Path(self.folder.name))
        self.state: FileState | None = None
        self.number = 0
        self.half = b""
        self.owed: list[int] = []
        """Messages that stand completely in the file and were not taken since it was last another file."""
        self.content: list[int] = []
        self.private: set[int] = set()
        self.away = False
        self.replaced = False
        self.tool.path.touch()

    def teardown(self) -> None:
        self.folder.cleanup()

    def _message(self) -> bytes:
        self.number += 1
        return line(user(f"message {self.number} {'ä' * (self.number % 40)}", self.number))

    def _complete(self) -> None:
        self.owed.append(self.number)
        self.content.append(self.number)

    @precondition(lambda self: not self.away)
    @rule(count=st.integers(1, 4))
    def grow(self, count: int) -> None:
        if self.half:
            self.finish_the_half_line()
        for _ in range(count):
            self.tool.write(self._message())
            self._complete()

    @precondition(lambda self: not self.away and not self.half)
    @rule(cut=st.integers(75, 150))
    def write_half_a_line(self, cut: int) -> None:
        """As far as its number at least: a file that begins with what another began with *is* that one, grown."""
        message = self._message()
        self.tool.write(message[:cut])
        self.half = message[cut:]

    @precondition(lambda self: not self.away and bool(self.half))
    @rule()
    def finish_the_half_line(self) -> None:
        self.tool.write(self.half)
        self.half = b""
        if self.number not in self.private:
            self._complete()

    @precondition(lambda self: not self.away)
    @rule(keep=st.integers(0, 3))
    def replace(self, keep: int) -> None:
        """Another file: begins with a new message, may hold some of the old ones."""
        kept = [number for number in self.content[-keep:] if keep and number not in self.private]
        messages = [self._message()]
        fresh = [self.number]
        messages += [line(user(f"message {number} {'ä' * (number % 40)}", number)) for number in kept]
        self.tool.path.write_bytes(b"".join(messages))
        self.content = [*fresh, *kept]
        self.owed = list(self.content)
        self.half = b""

    @precondition(lambda self: not self.away)
    @rule()
    def truncate(self) -> None:
        self.tool.path.write_bytes(b"")
        self.content, self.owed, self.half = [], [], b""

    @precondition(lambda self: not self.away)
    @rule()
    def move_away(self) -> None:
        self.tool.path.rename(self.tool.path.with_suffix(".away"))
        self.away = True

    @precondition(lambda self: self.away)
    @rule()
    def move_back(self) -> None:
        self.tool.path.with_suffix(".away").rename(self.tool.path)
        self.away = False

    @precondition(lambda self: not self.away)
    @rule()
    def step_over(self) -> None:
        self.state = self.tool.adapter.skip(self.tool.path)
        self.private.update(self.owed)
        if self.half:
            self.private.add(self.number)
        self.owed = []

    @precondition(lambda self: not self.away)
    @rule()
    def read_and_die_before_the_commit(self) -> None:
        self._with_small_passes(self.state)

    @precondition(lambda self: not self.away)
    @rule()
    def read(self) -> None:
        taken, self.state = self._with_small_passes(self.state)
        assert taken == self.owed
        self.owed = []

    @invariant()
    def nothing_private_is_owed(self) -> None:
        assert not self.private & set(self.owed)

    def _with_small_passes(self, state: FileState | None) -> tuple[list[int], FileState]:
        before = line_reader.PASS_BYTES_MAX
        line_reader.PASS_BYTES_MAX = PASS_BYTES
        try:
            operations, after = self.tool.read_all(state)
        finally:
            line_reader.PASS_BYTES_MAX = before
        return [int(piece.message[-12:]) for operation in operations for piece in operation.pieces], after


Transcript.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = Transcript.TestCase

"""Machines that copy their sessions into homes, and a sync of these homes without a relay."""

import shutil
from collections.abc import Collection
from pathlib import Path

from crystal_node.capture.claude_code import ClaudeCode
from crystal_node.capture.line_adapter import LineAdapter
from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.database import SessionDatabase
from crystal_node.derive.sessions.layout import FOLDER
from crystal_node.derive.sessions.writer import SessionWriter
from crystal_node.device.privacy import Privacy
from tests.node.derive.sessions.support import SESSION

PUBLIC = Privacy()


def nothing_hidden(_: Collection[bytes]) -> set[bytes]:
    return set()


class Machine:
    """One machine with Claude Code on it."""

    def __init__(self, folder: Path, name: str, *, exact: bool = False) -> None:
        self.person = folder / name
        self.root = self.person / ".ldm"
        self.device = name * 32
        self.slug = self.person / ".claude" / "projects" / "-home-ada"
        self.slug.mkdir(parents=True)
        self.root.mkdir()
        self.transcript = self.slug / f"{SESSION}.jsonl"
        self.adapter: LineAdapter = ClaudeCode(self.person / ".claude", self.person)
        self.adapter.crystal_home = self.root
        self.exact = exact
        self.database = SessionDatabase.open(self.root.parent / "sessions.db")
        self.writer = self._writer()
        self.copies = SessionCopies(self.root)

    def _writer(self) -> SessionWriter:
        return SessionWriter(
            self.root,
            self.device,
            self.database,
            self.adapter,
            person_home=self.person,
            exact=lambda _cwd, _repository: self.exact,
        )

    def says(self, data: bytes) -> None:
        with self.transcript.open("ab") as file:
            file.write(data)

    def copy(self, *, quiet: bool = True, hides: object = nothing_hidden, privacy: Privacy = PUBLIC) -> int:
        quiet_ns = 2**62 if quiet else -1
        return self.writer.copy(self.transcript, SESSION, privacy, hides, quiet_ns=quiet_ns)  # type: ignore[arg-type]

    def forget_cursors(self) -> None:
        """As if the database were lost."""
        self.database.close()
        for path in self.person.glob("sessions.db*"):
            path.unlink()
        self.database = SessionDatabase.open(self.person / "sessions.db")
        self.writer = self._writer()

    def tip(self) -> bytes:
        """The bytes of the session as it would be resumed here."""
        branches = self.copies.branches("claude-code", SESSION)
        return b"".join(self.copies.read(branches[0].tip)) if branches else b""

    def streams(self) -> list[bytes]:
        """The bytes of the tip of each branch."""
        found = self.copies.branches("claude-code", SESSION)
        return [b"".join(self.copies.read(branch.tip)) for branch in found]


def sync(*machines: Machine) -> None:
    """Each device's directories as that device has them, on all machines."""
    for owner in machines:
        for other in machines:
            if owner is other:
                continue
            for folder in sorted((owner.root / FOLDER).glob(f"*/*/{owner.device}")):
                target = other.root / folder.relative_to(owner.root)
                if target.exists():
                    shutil.rmtree(target)
                shutil.copytree(folder, target)

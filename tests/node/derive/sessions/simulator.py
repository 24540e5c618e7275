"""Random machines that hold one session at once: the real writer on real files, seeded. `python -m` this, `--runs N` for more.

Two to five machines append to the session's file, leave lines torn, go on with it elsewhere, rewrite and rotate it, move it to
another project's folder, lose their database, and are killed before or after any write of a copy. Their copies reach each
other late, in part and in any order. At the end all is copied and all has arrived. Then

- each state of a file that was copied is the beginning of a branch: no byte is lost;
- no branch is the beginning of another one, and each is the beginning of a file that there was: no false conflict;
- each head can be read, on each machine.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

from crystal_node.base.file_rules import TEMPORARY_PREFIX
from crystal_node.derive.sessions import segments
from crystal_node.derive.sessions.copies import CopyDamaged, CopyIncomplete
from crystal_node.derive.sessions.database import Cursor, SessionDatabase
from crystal_node.derive.sessions.layout import FOLDER, HEAD_NAME
from tests.node.derive.sessions.machines import Machine, sync
from tests.node.derive.sessions.support import SESSION

MACHINES = (2, 5)
STEPS = (5, 40)


class Killed(BaseException):
    """The process died. No error, so that nothing handles it."""


class SimulatedMachines:
    """One run. ``existed``: each state that a file ever had, of lines; ``copied``: those that a machine has copied."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        count = self.chance.randint(*MACHINES)
        self.machines = [Machine(folder, "abcde"[number]) for number in range(count)]
        self.rests: dict[str, bytes] = {}
        self.existed: set[bytes] = set()
        self.copied: set[bytes] = set()
        self.told: list[str] = []
        self._lines = 0

    def run(self) -> list[str]:
        """Returns what does not hold."""
        actions: list[tuple[int, Callable[[Machine], None]]] = [
            (24, self._append),
            (6, self._tear),
            (24, self._copy),
            (8, self._killed_copy),
            (16, self._arrive),
            (10, self._resume),
            (3, self._compact),
            (2, self._rotate),
            (3, self._rename),
            (2, self._lose),
            (4, self._settle),
        ]
        weights = [weight for weight, _ in actions]
        for _ in range(self.chance.randint(*STEPS)):
            one = self.chance.choice(self.machines)
            [(_, action)] = self.chance.choices(actions, weights)
            self.told.append(f"{one.device[0]} {action.__name__.strip('_')}")
            action(one)
        return self._problems()

    def close(self) -> None:
        for one in self.machines:
            one.database.close()

    # --- what happens ---

    def _append(self, one: Machine) -> None:
        rest = self.rests.pop(one.device, b"")
        if rest and self.chance.random() < 0.3:  # the tool died, and begins another line
            rest = b"\n"
        self._write(one, rest + b"".join(self._line(one) for _ in range(self.chance.randint(1, 4))))

    def _tear(self, one: Machine) -> None:
        line = self.rests.pop(one.device, b"") or self._line(one)
        at = self.chance.randint(0, len(line))
        self.rests[one.device] = line[at:]
        self._write(one, line[:at])

    def _copy(self, one: Machine) -> None:
        if not one.transcript.exists():
            return
        if self.chance.random() < 0.3:
            one.copy(quiet=False)
            return
        one.copy()
        self.copied.add(_lines_of(one.transcript))

    def _killed_copy(self, one: Machine) -> None:
        if one.transcript.exists():
            with suppress(Killed), _dies_after(self.chance.randint(0, 8), self.chance):
                one.copy()

    def _arrive(self, one: Machine) -> None:
        """Copies of one machine reach another one, perhaps not all of them."""
        other = self.chance.choice(self.machines)
        if other is one:
            sync(*self.machines)
            return
        for folder in sorted((one.root / FOLDER).glob(f"*/*/{one.device}")):
            there = other.root / folder.relative_to(one.root)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            self.chance.shuffle(files)
            for path in files[: self.chance.randint(0, len(files))]:
                if not path.name.startswith(TEMPORARY_PREFIX):
                    target = there / path.relative_to(folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)

    def _resume(self, one: Machine) -> None:
        """A branch is put where the tool looks for it, after what is there was copied."""
        self.rests.pop(one.device, None)
        if one.transcript.exists():
            one.copy()
            self.copied.add(_lines_of(one.transcript))
        found = one.copies.branches("claude-code", SESSION)
        if found:
            with suppress(CopyIncomplete):
                self._put(one, b"".join(one.copies.read(self.chance.choice(found).tip)))

    def _compact(self, one: Machine) -> None:
        """The tool writes the file again, with a summary in the place of its beginning."""
        if one.transcript.exists():
            self.rests.pop(one.device, None)
            kept = _lines_of(one.transcript).splitlines(keepends=True)
            at = self.chance.randint(0, len(kept))
            summary = self._line(one) if self.chance.random() < 0.7 else b""
            self._put(one, summary + b"".join(kept[at:]))

    def _rotate(self, one: Machine) -> None:
        """The file is moved away, and another one begins under its name."""
        if one.transcript.exists():
            self.rests.pop(one.device, None)
            one.transcript.rename(one.transcript.with_name(f"old-{self._lines}.txt"))
            self._append(one)

    def _rename(self, one: Machine) -> None:
        """The project's folder has another name."""
        slug = one.slug.with_name(f"-home-ada-{self._lines}-{self.chance.randint(0, 99)}")
        if not slug.exists():
            one.slug.rename(slug)
            one.slug, one.transcript = slug, slug / one.transcript.name

    def _lose(self, one: Machine) -> None:
        one.forget_cursors()

    def _settle(self, one: Machine) -> None:
        if self.chance.random() < 0.5:
            one.writer.settle(one.transcript)
            return
        with suppress(Killed), _dies_after(self.chance.randint(0, 4), self.chance):
            one.writer.settle(one.transcript)

    # --- files ---

    def _line(self, one: Machine) -> bytes:
        self._lines += 1
        record = {
            "type": "user",
            "uuid": f"u-{self._lines}",
            "sessionId": SESSION,
            "cwd": "/home/ada/work",
            "message": {"role": "user", "content": f"by {one.device[0]}" * self.chance.randint(1, 3)},
        }
        return json.dumps(record).encode() + b"\n"

    def _write(self, one: Machine, data: bytes) -> None:
        one.says(data)
        self.existed.add(_lines_of(one.transcript))

    def _put(self, one: Machine, data: bytes) -> None:
        """In the place of the file, or into it: tools do both."""
        if self.chance.random() < 0.5 and one.transcript.exists():
            one.transcript.unlink()
        one.transcript.write_bytes(data)
        self.existed.add(_lines_of(one.transcript))

    # --- the end ---

    def _problems(self) -> list[str]:
        for one in self.machines:
            if one.transcript.exists():
                one.copy()
                self.copied.add(_lines_of(one.transcript))
        sync(*self.machines)
        found: list[str] = []
        for one in self.machines:
            where = f"on {one.device[0]}"
            try:
                for head in one.copies.heads():
                    assert len(b"".join(one.copies.read(head))) == head.main.bytes
                tips = one.streams()
            except (CopyDamaged, CopyIncomplete) as error:
                found.append(f"{error} {where}")
                continue
            if len(list(one.copies.heads())) != len(list((one.root / FOLDER).rglob(HEAD_NAME))):
                found.append(f"a head cannot be used {where}")
            found += [
                f"{len(state)} bytes that were copied are gone {where}"
                for state in self.copied - {b""}
                if not any(tip.startswith(state) for tip in tips)
            ]
            for number, tip in enumerate(tips):
                if any(other.startswith(tip) for other in tips[:number] + tips[number + 1 :]):
                    found.append(f"a beginning is told as a fork {where}")
                if not any(state.startswith(tip) for state in self.existed):
                    found.append(f"a branch of {len(tip)} bytes never was {where}")
        return found


@contextmanager
def _dies_after(writes: int, chance: random.Random) -> Generator[None]:
    """Files and cursors are written so often; then the process dies, before or after the next one."""
    left, late = writes, chance.random() < 0.5
    put_file, set_cursor = segments.put_file, SessionDatabase.set_cursor

    def counted(write: Callable[[], None]) -> None:
        nonlocal left
        left -= 1
        if left < 0 and not late:
            raise Killed
        write()
        if left < 0:
            raise Killed

    def putting(path: Path, data: bytes) -> None:
        counted(lambda: put_file(path, data))

    def setting(database: SessionDatabase, path: Path, cursor: Cursor) -> None:
        counted(lambda: set_cursor(database, path, cursor))

    with (
        mock.patch.object(segments, "put_file", putting),
        mock.patch.object(SessionDatabase, "set_cursor", setting),
    ):
        yield


def _lines_of(path: Path) -> bytes:
    """What a copy of a quiet file holds: its whole lines, and a last record that has no newline."""
    complete, _, last = path.read_bytes().rpartition(b"\n")
    kept = complete + b"\n" if complete else b""
    with suppress(ValueError):
        if last and isinstance(json.loads(last), dict):
            return kept + last + b"\n"
    return kept


def simulate(seed: int) -> list[str]:
    """One run. Returns what does not hold, and what happened."""
    memory = Path("/dev/shm")  # nothing here has to survive, and runs wait for no disk
    parent = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="crystal-sessions-", dir=parent) as folder:
        world = SimulatedMachines(seed, Path(folder))
        try:
            problems = world.run()
        finally:
            world.close()
    return [*problems, f"what happened: {', '.join(world.told)}"] if problems else []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the others follow")
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.runs):
        for problem in (found := simulate(seed)):
            sys.stdout.write(f"seed {seed}: {problem}\n")
        if found:
            return 1
    sys.stdout.write(f"{options.runs} runs from seed {options.seed}: nothing lost, no false conflict\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Random prompts in 50 projects: no text of another project is told, and what the person keeps for everywhere is still found.

Each project has conversations and memories about the same matters, and each of its texts has a word that no other project has,
by which a text that leaks is told. Some projects lie in one another, have names that end alike, or are linked. Prompts quote
other projects' texts and names, ask about matters of all, or are random signs; a share of them asks for one of the memories
that hold everywhere. `python -m bench.quality.recall_projects` runs 100,000 of them.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from bench.memories import DEVICE, INCARNATION, SECRET
from bench.quality.sets import DAY, NOW
from crystal_core.database import Database
from crystal_core.replica import Replica
from crystal_core.state.mirror_log import MODEL
from crystal_mirror.operations import Capture, LinkProjects, Operation, Piece, Remember
from crystal_mirror.types import Origin
from crystal_node.base.settings import Settings, child_environment, resolve
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput
from crystal_node.search.recall.selection import recall

PROJECTS = 50
SESSIONS, TURNS = 3, 4
PROMPTS = 100_000
FOUND_MIN = 0.95
GLOBAL_SHARE = 0.2
START_SHARE = 0.02
HYBRID_SHARE = 0.5
DIMENSIONS = 64

_SUBJECTS = (
    "retry budget", "connection pool", "release branch", "cache size", "log level", "upload limit", "session timeout",
    "queue depth", "backup window", "index format", "token lifetime", "worker count", "rate limit", "build image",
    "feature flag", "port number",
)  # fmt: skip
_PARTS = (
    "gateway",
    "billing",
    "importer",
    "scheduler",
    "mailer",
    "search",
    "uploader",
    "dashboard",
    "exporter",
    "proxy",
)
_REASONS = (
    "the load test",
    "an outage",
    "the client's audit",
    "slow disks",
    "a memory leak",
    "the new region",
    "cost",
)
_FONDNESS = (
    "tabs", "short answers", "British spelling", "diagrams", "unit tests first", "small commits", "dark themes",
    "metric units",
)  # fmt: skip
_MATTERS = (
    "keyboard", "umbrella", "espresso", "bicycle", "violin", "harbour", "lantern", "marathon", "orchard", "passport",
    "quilt", "saffron", "telescope", "vineyard", "walnut", "zeppelin", "anchor", "bonsai", "compass", "domino",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A project: where a session in it runs, what it is known by, and the word that all its texts have."""

    folder: str
    repository: str
    word: str
    kin: frozenset[str]
    """Words of the projects whose texts may be told here, its own among them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``leaks``: prompts with what was told of another project. ``wanted``: prompts that ask for a memory that holds
    everywhere, ``found``: those at which it was told. ``told``: prompts at which anything was."""

    prompts: int
    told: int
    wanted: int
    found: int
    leaks: Sequence[tuple[str, str]]
    seconds: float

    @property
    def share(self) -> float:
        return self.found / max(self.wanted, 1)


class HashedWords:
    """Vectors of the words in a text, for a search by meaning that costs nothing: a text's vector is the sum of its words'."""

    identity = "hashed-words"
    dimensions = DIMENSIONS
    reason = ""
    loaded = True

    def __init__(
        self, settings: Settings | None = None, database: Database | None = None, *, worker: bool = False
    ) -> None:
        del settings, database, worker

    def embed_windows(self, texts: Sequence[str]) -> list[list[bytes]]:
        return [[self.embed_query(text).astype("<f2").tobytes()] for text in texts]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        total = np.zeros(DIMENSIONS, np.float32)
        for word in text.casefold().split():
            total += _direction(word.strip(".,?!:"))
        length = float(np.linalg.norm(total))
        return total / length if length else np.eye(1, DIMENSIONS, dtype=np.float32)[0]

    def prepare(self) -> None:
        """Nothing is loaded."""

    def look(self) -> None:
        """Nothing changes."""

    def release(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""


def places() -> list[Place]:
    """The projects. The first ones lie in pairs that are easily mistaken, the last ones are linked in pairs."""
    folders: list[tuple[str, str]] = []
    for number in range(PROJECTS):
        folder, repository = f"work/p{number}", f"host.example/team/p{number}"
        if number % 5 == 1:  # in the one before, without a repository of its own
            folder, repository = f"work/p{number - 1}/inner", ""
        elif number % 5 == 2:  # a name that ends alike
            folder, repository = f"clients/p{number - 2}", f"host.example/other/p{number - 2}"
        elif number % 5 == 3:
            repository = ""
        folders.append((folder, repository))
    words = [
        f"zq{number:02d}x{hashlib.sha256(str(number).encode()).hexdigest()[:6]}" for number in range(PROJECTS)
    ]
    kin = [{word} for word in words]
    for one, other in _linked():
        kin[one].add(words[other])
        kin[other].add(words[one])
    return [
        Place(folder, repository, word, frozenset(own))
        for (folder, repository), word, own in zip(folders, words, kin, strict=True)
    ]


def _linked() -> list[tuple[int, int]]:
    return [(number, number + 1) for number in range(PROJECTS - 10, PROJECTS, 2)]


@cache
def _direction(word: str) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(DIMENSIONS, np.float32)


class World:
    """The memory, and prompts for it."""

    def __init__(self, seed: int) -> None:
        self.places = places()
        self._random = Random(seed)
        self.everywhere = {
            f"The {matter} {self._random.choice(_REASONS)} calls for is kept at number {number + 3}, with {fond}.": matter
            for number, (matter, fond) in enumerate((m, f) for m in _MATTERS for f in _FONDNESS[:2])
        }
        self.said: list[tuple[str, str]] = []

    def operations(self) -> Generator[Operation]:
        for number, place in enumerate(self.places):
            for session in range(SESSIONS):
                yield self._conversation(place, number * SESSIONS + session)
            scope = place.repository or place.folder
            for part in self._random.sample(_PARTS, 2):
                fond, reason = self._random.choice(_FONDNESS), self._random.choice(_REASONS)
                text = f"The {part} of {place.word} prefers {fond} after {reason}."
                yield Remember(text, "fact", "agent", self._moment(), scope=scope)
        for text in self.everywhere:
            yield Remember(text, "preference", "agent", self._moment(), scope="")
        for one, other in _linked():
            keys = [(self.places[number].folder, self.places[number].repository) for number in (one, other)]
            yield LinkProjects(keys[0], keys[1], True, NOW)

    def prompt(self, random: Random) -> tuple[str, str]:
        """A prompt, and the memory that it asks for, "" if none."""
        if random.random() < GLOBAL_SHARE:
            text = random.choice(list(self.everywhere))
            words = [word.strip(".,") for word in text.split() if len(word) > 2]
            kept = [word for word in words if random.random() < 0.8 or word == self.everywhere[text]]
            return " ".join(["what about", *kept, "?"][: len(kept) + random.choice((1, 2))]), text
        kind = random.randrange(6)
        question, answer = random.choice(self.said)
        other = random.choice(self.places)
        if kind == 0:
            return question, ""
        if kind == 1:
            return answer[: random.randint(10, len(answer))], ""
        if kind == 2:
            return (
                f"what did we decide in {other.folder} ({other.repository}) about the {random.choice(_SUBJECTS)}?",
                "",
            )
        if kind == 3:
            return (
                f"{other.word} {random.choice(_SUBJECTS)} {random.choice(('last week', 'in March', ''))}",
                "",
            )
        if kind == 4:
            subject, part, reason = random.choice(_SUBJECTS), random.choice(_PARTS), random.choice(_REASONS)
            return f"why was the {subject} of the {part} changed after {reason}?", ""
        return "".join(
            chr(random.choice((random.randrange(32, 127), random.randrange(0xA0, 0x3000)))) for _ in range(40)
        ), ""

    def _conversation(self, place: Place, number: int) -> Capture:
        random, at = self._random, self._moment()
        pieces: list[Piece] = []
        for turn in range(TURNS):
            subject, part = random.choice(_SUBJECTS), random.choice(_PARTS)
            question = f"Why is the {subject} of the {part} in {place.word} what it is?"
            number_now, reason = random.randint(2, 900), random.choice(_REASONS)
            answer = f"In {place.word} the {subject} of the {part} went to {number_now} after {reason}."
            self.said.append((question, answer))
            for step, (role, text) in enumerate((("user", question), ("assistant", answer))):
                moment = at + (2 * turn + step) * 60_000
                pieces.append(Piece(text, role, moment, f"{number}-{turn}-{step}", 0))
        return Capture(
            "agent", f"session-{number}", place.folder, place.repository, "claude-code", tuple(pieces)
        )

    def _moment(self) -> int:
        return NOW - self._random.randrange(400 * DAY)


@contextmanager
def world(seed: int) -> Generator[tuple[World, Settings, Finder]]:
    """A home with the world's memory, and real folders, in the system's folder for temporary files."""
    made = World(seed)
    with tempfile.TemporaryDirectory(prefix="crystal-recall-") as folder:
        home = Path(folder) / ".ldm"
        for name in ("memory", "state"):
            (home / name).mkdir(parents=True, mode=0o700)
        (home / "config.json").write_text(json.dumps({"version": 1, "vault": "00" * 16}))
        for place in made.places:
            (Path(folder) / place.folder / ".git").mkdir(parents=True)
            remote = (
                f'[remote "origin"]\n\turl = https://{place.repository}.git\n' if place.repository else ""
            )
            (Path(folder) / place.folder / ".git" / "config").write_text(remote)
        _fill(made, home / "memory" / "crystal.db")
        settings = resolve(environment=child_environment({"CRYSTAL_HOME": str(home), "HOME": folder}))
        with (
            mock.patch("crystal_node.search.finding.finder.VaultEmbedder", HashedWords),
            mock.patch("crystal_node.search.finding.finder.now_ms", return_value=NOW),
            Finder(settings) as finder,
        ):
            yield made, settings, finder


def run(prompts: int, seed: int = 1, *, hybrid_share: float = HYBRID_SHARE, told_every: int = 0) -> Outcome:
    """Recall at so many prompts, that share of them by words and meaning; a line of progress each ``told_every``."""
    began = time.monotonic()
    random = Random(seed)
    told = wanted = found = 0
    leaks: list[tuple[str, str]] = []
    with world(seed) as (made, settings, finder):
        for number in range(prompts):
            if told_every and number and number % told_every == 0:
                so_far = f"{len(leaks):,} leaks, {found:,} of {wanted:,} found"
                print(
                    f"{number:,} prompts, {time.monotonic() - began:.0f} s, {so_far}",
                    file=sys.stderr,
                    flush=True,
                )
            place = random.choice(made.places)
            prompt, memory = made.prompt(random)
            start = random.random() < START_SHARE
            event = HookEvent.START if start else HookEvent.PROMPT
            hook = HookInput(
                event, cwd=str(settings.person_home / place.folder), source="startup", prompt=prompt
            )
            words_only = random.random() >= hybrid_share
            text = recall(hook, settings, lambda: finder, NOW, words_only=words_only).text
            told += bool(text)
            if any(each.word in text for each in made.places if each.word not in place.kin):
                leaks.append((prompt, text))
            if memory and not start:
                wanted += 1
                found += memory in text
    return Outcome(prompts, told, wanted, found, leaks, time.monotonic() - began)


def _fill(made: World, path: Path) -> None:
    embedder = HashedWords()
    replica = Replica.open(path, SECRET)
    try:
        with replica.transaction() as transaction:
            for number, operation in enumerate(made.operations(), 1):
                place = Origin(DEVICE, INCARNATION, number)
                transaction.apply(place, operation, lambda text: embedder.embed_windows([text])[0])
                transaction.mark_done(place)
            transaction.meta_set(MODEL, embedder.identity.encode())
    finally:
        replica.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality.recall_projects", description="Whether recall keeps projects apart."
    )
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--words-only", action="store_true", help="without vectors, in less time")
    options = parser.parse_args(arguments)
    share = 0.0 if options.words_only else HYBRID_SHARE
    found = run(options.prompts, options.seed, hybrid_share=share, told_every=1_000)
    print(
        f"{found.prompts:,} prompts in {PROJECTS} projects, {found.seconds:.0f} s: something told at {found.told:,}, "
        f"{len(found.leaks):,} leaks; {found.share:.1%} of {found.wanted:,} for what holds everywhere found"
    )
    for prompt, text in found.leaks[:5]:
        print(f"  {prompt!r}: {text!r}")
    return int(bool(found.leaks) or found.share < FOUND_MIN)


if __name__ == "__main__":
    sys.exit(main())

"""What is written in a simulated world, and where it must not be seen again."""

from hashlib import sha256
from random import Random

from msgspec.structs import replace

from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import (
    Amend,
    Capture,
    DropDocument,
    DropSource,
    Forget,
    LinkProjects,
    Operation,
    Piece,
    PutDocument,
    PutSource,
    Remember,
    Replace,
    Replaced,
    Status,
)
from tests.sim.embedding import embed
from tests.sim.filing import LINES, PATHS
from tests.sim.secrecy import PLANTED_BYTES_MIN, Secrecy

TEXTS = (
    "tea, no sugar",
    "the spare key is under the third stone",
    "ship on Friday",
    "a text that is long enough to need two windows of the embedder",
    "Böhm's number: +49 30 1234",
    "forget me",
)
SOURCE = "claude-code"
MODELS = ("", "a model of the shed", "a model of the roof")
DOCUMENTS = ("notes of the house", "code of the shed")
DOCUMENT_PATHS = ("plans of the roof.md", "ladders/list.md")
PROJECTS = (("work/roof of the shed", ""), ("", "host/owner/ladder"), ("work/ladder", "host/owner/ladder"))


def plant_writings(secrecy: Secrecy) -> None:
    """Every text, vector and file name that a world may hold."""
    for text in TEXTS:
        secrecy.plant("a text", text.encode())
        for vector in embed(text):
            secrecy.plant("a vector", vector)
    projects = (name for project in PROJECTS for name in project)
    for text in (SOURCE, *MODELS, *DOCUMENTS, *DOCUMENT_PATHS, *projects, *PATHS, *LINES):
        if len(text) >= PLANTED_BYTES_MIN:
            secrecy.plant("a name, or a file's text", text.encode())


def _answered(piece: Piece) -> Piece:
    """The piece with a model, or without one. By its text, so that nothing else is drawn in another order than before."""
    return replace(piece, model=MODELS[len(piece.text) % len(MODELS)])


class Writer:
    """Makes operations."""

    def __init__(self, secret: VaultSecret) -> None:
        self._secret = secret
        self._serial = 0
        self._dropped: set[DropSource | DropDocument] = set()
        self._begun: PutDocument | None = None
        """Of a document in several operations, the last that was made."""

    def new_operation(self, draw: Random) -> Operation:
        """One of few texts, so that they meet again; made unique by a serial number; with a clock that is off by years."""
        self._serial += 1
        clock = draw.choice((0, 1, 10**12, 2 * 10**12, 2**50)) + self._serial
        match draw.randrange(6):
            case 0:
                return Remember(draw.choice(TEXTS), draw.choice(("fact", "event")), f"a{self._serial}", clock)
            case 1:
                return self.forget(draw.choice(TEXTS))
            case _:
                pieces = tuple(
                    Piece(draw.choice(TEXTS), "user", clock, f"m{draw.randrange(4)}", part)
                    for part in range(draw.randint(1, 3))
                )
                said = Capture("agent", draw.choice(("s1", "s2")), f"p{self._serial}", "", SOURCE, pieces)
                # Drawn apart, so that worlds before and after these operations came are the same in all else; and from what a
                # piece had when they came.
                apart = Random(repr(said).replace(", model=''", ""))
                said = replace(said, pieces=tuple(map(_answered, pieces)))
                return said if apart.random() < 0.5 else self._kept_or_read_in(apart, clock)

    def _kept_or_read_in(self, draw: Random, clock: int) -> Operation:
        """What is done with memories, and what sources of documents bring: in and out of turn, by whichever device."""
        agent = f"a{self._serial}"
        # Drawn apart for the same reason.
        later = Random(f"{agent} {clock}")
        if Random(f"{clock} {agent}").random() < 0.1:
            return self.replace(Random(f"{agent}: {clock}"))
        if later.random() < 0.1:
            one, other = later.sample(PROJECTS, 2)
            return LinkProjects(one, other, later.random() < 0.6, clock)
        scope = later.choice((None, None, "", *(name for project in PROJECTS for name in project if name)))
        match draw.randrange(9):
            case 0:
                old = tuple(self.name(text) for text in draw.sample(TEXTS, draw.randint(1, 2)))
                return Remember(draw.choice(TEXTS), "fact", agent, clock, draw.choice((40, 100)), old, scope)
            case 1:
                category = draw.choice((None, "fact", "event"))
                status: Status | None = draw.choice((None, "active", "retired"))
                return Amend(
                    self.name(draw.choice(TEXTS)),
                    category,
                    draw.choice((None, 70)),
                    status,
                    agent,
                    clock,
                    scope,
                )
            case 2 | 3:
                return PutSource(draw.choice(DOCUMENTS), "", ("*.md",), (), clock)
            case 4:
                source, path = draw.choice(DOCUMENTS), draw.choice(DOCUMENT_PATHS)
                drop = DropSource(source) if draw.random() < 0.3 else DropDocument(source, path)
                if drop in self._dropped:  # nothing in it would make it another operation
                    return self._document(draw, clock)
                self._dropped.add(drop)
                return drop
            case _:
                return self._document(draw, clock)

    def _document(self, draw: Random, clock: int) -> PutDocument:
        before, self._begun = self._begun, None
        if before is not None and draw.random() < 0.7:
            first, source, path = before.first + len(before.texts), before.source, before.path
            version, total = before.version, before.total
        else:
            first, source, path = 0, draw.choice(DOCUMENTS), draw.choice(DOCUMENT_PATHS)
            version, total = sha256(bytes([draw.randrange(3)])).digest(), draw.randint(0, 4)
        texts = tuple(draw.choice(TEXTS) for _ in range(min(total - first, draw.randint(1, 3))))
        made = PutDocument(source, path, version, clock, "md", first, total, texts, ("",) * len(texts))
        if first + len(texts) < total:
            self._begun = made
        return made

    def name(self, text: str) -> bytes:
        return self._secret.forget_hash(sha256(text.encode()).digest())

    def forget(self, text: str) -> Forget:
        """A second target that no text has makes every forget different from all others."""
        self._serial += 1
        nothing = sha256(f"nothing {self._serial}".encode()).digest()
        return Forget((self.name(text), nothing))

    def replace(self, draw: Random) -> Replace:
        """One or two texts by another, which may be one of them, or none that is there. No replace equals another."""
        nothing = sha256(f"replaced {self._serial}".encode()).digest()
        pairs = ((draw.choice(TEXTS), draw.choice(TEXTS)) for _ in range(draw.randint(1, 2)))
        replaced = [Replaced(self.name(old), new) for old, new in pairs]
        return Replace((*replaced, Replaced(nothing, TEXTS[0])))

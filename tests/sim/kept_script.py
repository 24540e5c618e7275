"""A script of memories and documents: everything that decides what is current, and whose a document is, happens once."""

from hashlib import sha256
from typing import TYPE_CHECKING

from crystal_mirror.operations import (
    Amend,
    Capture,
    DropDocument,
    LinkProjects,
    Piece,
    PutDocument,
    PutSource,
    Remember,
)
from tests.sim.writing import DOCUMENT_PATHS, DOCUMENTS, PROJECTS, TEXTS

if TYPE_CHECKING:
    from tests.sim.script import Stage

OLD, NEW, OTHER, SAID, FORGOTTEN, ALONE = TEXTS
NOTES = DOCUMENTS[0]


def keeping(stage: "Stage") -> None:
    """A memory takes another's place and is forgotten; both devices put the same source, and one of them comes late."""
    core, laptop, name = stage.core, stage.laptop, stage.world.writer.name

    def put(version: int, first: int, total: int, *texts: str, path: str = DOCUMENT_PATHS[0]) -> PutDocument:
        content = sha256(bytes([version])).digest()
        return PutDocument(NOTES, path, content, version, "md", first, total, texts, ("",) * len(texts))

    stage.sync(core, laptop, laptop)
    stage.accept(core, Remember(OLD, "fact", "a1", 1))
    stage.accept(core, Capture("agent", "s1", "p", "", "claude-code", (Piece(SAID, "user", 1, "m", 0),)))
    stage.accept(core, PutSource(NOTES, "", ("*.md",), (), 1))
    stage.accept(core, put(1, 0, 4, SAID, ALONE))
    stage.sync(core, laptop)
    stage.accept(core, Amend(name(OLD), None, None, None, "a4", 2, "work/ladder"))
    stage.accept(laptop, Remember(NEW, "fact", "a2", 2, 60, (name(OLD),)))
    stage.accept(laptop, LinkProjects(*PROJECTS[:2], True, 2))
    stage.accept(laptop, Amend(name(OLD), None, None, "active", "a3", 3))
    stage.sync(laptop, core, laptop)
    stage.accept(core, LinkProjects(*PROJECTS[:2], False, 3))
    stage.accept(core, put(2, 0, 3, SAID, OTHER))
    stage.accept(core, put(1, 2, 4, FORGOTTEN, ALONE))
    stage.accept(core, stage.world.forget(NEW))
    stage.sync(core, laptop)
    stage.accept(laptop, PutSource(NOTES, "", ("*.md",), (), 4))
    stage.accept(laptop, put(3, 0, 1, FORGOTTEN))
    stage.sync(laptop, core)
    stage.accept(core, put(4, 0, 2, ALONE, OTHER))
    stage.accept(core, put(5, 0, 1, OTHER, path=DOCUMENT_PATHS[1]))
    stage.accept(laptop, stage.world.forget(FORGOTTEN))
    stage.accept(laptop, put(6, 0, 2, FORGOTTEN, SAID))
    stage.sync(laptop, core)
    stage.accept(laptop, DropDocument(NOTES, DOCUMENT_PATHS[0]))
    stage.sync(laptop, core, laptop)

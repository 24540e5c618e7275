"""One conversation as an export of another program has it, whichever program that is."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crystal_node.base.errors import UsageError
from crystal_node.base.project import ProjectFinder
from crystal_node.capture.exclusions import Exclusions
from crystal_node.capture.messages import bounded, derived_id, model_name
from crystal_node.capture.private_words import without_private
from crystal_node.safekeeping.portable.export_format import PieceRecord

CONVERSATION_BYTES_MAX = 64 * 1024 * 1024
"""One conversation. A longer one is left out, and counted."""

Skipped = Counter[str]
"""Parts and conversations that were left out, by reason."""

TOOL_CALL = "tool call"
TOO_LONG = "conversation too long"
DAMAGED = "damaged conversation"
UNKNOWN = "conversation of unknown form"
NOBODY = "not said by anybody"


class NotAChatExport(UsageError):
    """A file is no export that is known here, or is damaged."""

    hint = (
        "Give what ChatGPT, claude.ai or Google Takeout let you download (ZIP, JSON, Gemini's HTML), Cursor's state.vscdb, a "
        "chat of Copilot in VS Code, or a folder of these or of `crystal export`."
    )


class Said(NamedTuple):
    """One message. ``message``: its id, "" for none; ``moment`` in milliseconds since 1970, 0 if unknown; texts by role;
    ``model``: which one said it, "" if unknown."""

    message: str
    moment: int
    texts: dict[str, str]
    model: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """``session``: its id, "" for none. ``begun``: milliseconds since 1970, 0 if unknown; it stands for messages that have no
    time. ``folder``: the one that was worked in, "" if it is not known."""

    agent: str
    source: str
    session: str
    begun: int
    said: list[Said] = field(default_factory=list[Said])
    title: str = ""
    folder: str = ""

    def records(
        self, places: ProjectFinder | None, exclusions: Exclusions | None, skipped: Skipped
    ) -> Iterator[PieceRecord]:
        """Its messages in the order of their times, without what its person keeps out."""
        session = bounded(self.session) or derived_id(self.source, str(self.begun), self.title)
        place = places.of(self.folder) if places is not None and self.folder else None
        for message, moment, texts, model in sorted(self.said, key=lambda one: one.moment or self.begun):
            at = moment or self.begun
            repository = place.repository if place else ""
            if exclusions is not None and self.folder and exclusions.hides(self.folder, repository, at):
                skipped["excluded project"] += 1
                continue
            for part, (role, text) in enumerate(texts.items()):
                said = without_private(text) if role == "user" else text
                if said.strip():
                    yield PieceRecord(
                        text=said,
                        agent=self.agent,
                        session=session,
                        role=role,
                        message=bounded(message) or derived_id(session, role, str(moment), text),
                        part=part,
                        created_at=at,
                        project=place.project if place else "",
                        repository=repository,
                        source=self.source,
                        model="" if role == "user" else model_name(model),
                    )

"""BEAM: long conversations between a person and an assistant, with questions and the messages that hold the evidence.

Each `N.chat.json` is a project of its own, `beam/N`, and each of its batches a session. The first message of a batch has a
date; every further message is a minute later. What stands behind `->->` in a message is the set's own mark and is cut off.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from bench.quality.public.corpus import Corpus, Place, Question, Text

FOLDER = "beam"
PARTS = {"dev": ("2", "3", "5", "6"), "test": ("8", "9", "11", "12")}
KINDS = (
    "information_extraction",
    "knowledge_update",
    "contradiction_resolution",
    "multi_session_reasoning",
    "temporal_reasoning",
    "event_ordering",
    "preference_following",
    "abstention",
)
UPDATE, CONTRADICTION, ABSTENTION = "knowledge_update", "contradiction_resolution", "abstention"
SIDES = {
    UPDATE: ("original_info", "updated_info"),
    CONTRADICTION: ("first_statement", "second_statement"),
}
MINUTE = 60_000
MARK = "->->"


def read_beam(folder: Path) -> Corpus | None:
    """The set, or None if the folder does not hold it."""
    if not (folder / FOLDER).is_dir():
        return None
    texts: list[Text] = []
    parts: dict[str, list[Question]] = {}
    for part, names in PARTS.items():
        parts[part] = []
        for name in names:
            chat = list(_messages(name, json.loads((folder / FOLDER / f"{name}.chat.json").read_bytes())))
            questions = json.loads((folder / FOLDER / f"{name}.questions.json").read_bytes())
            texts += chat
            parts[part] += _questions(name, questions, chat)
    return Corpus("BEAM", texts, parts)


def _messages(name: str, batches: list[dict[str, Any]]) -> Iterator[Text]:
    moment = 0
    for batch in batches:
        session = f"beam-{name}-{batch['batch_number']}"
        for message in (message for turn in batch["turns"] for message in turn):
            anchor = message.get("time_anchor")
            moment = _milliseconds(anchor) if anchor else moment + MINUTE
            text = message["content"].partition(MARK)[0].strip()
            if text:
                yield Text(text, f"beam/{name}", session, str(message["id"]), message["role"], moment)


def _milliseconds(anchor: str) -> int:
    """Nine o'clock on a day as ``March-15-2024``."""
    return int(datetime.strptime(f"{anchor} 09", "%B-%d-%Y %H").replace(tzinfo=UTC).timestamp() * 1000)


def _questions(name: str, asked: dict[str, list[dict[str, Any]]], chat: list[Text]) -> Iterator[Question]:
    places = {text.message: text.place for text in chat}
    for kind in KINDS:
        for one in asked.get(kind, []):
            source: dict[str, object] | list[object] = one.get("source_chat_ids") or []
            evidence = _places(source, places)
            if not evidence and kind != ABSTENTION:
                continue
            older, newer = (
                _places(source.get(side), places) if isinstance(source, dict) else frozenset[Place]()
                for side in SIDES.get(kind, ("", ""))
            )
            # One message that holds both states leaves nothing to put in order.
            sides = (older, newer) if older and newer and not older & newer else None
            yield Question(
                kind, one["question"], f"beam/{name}", chat[-1].created_at + MINUTE, evidence, sides
            )


def _places(source: object, places: Mapping[str, Place]) -> frozenset[Place]:
    """Of the ids in lists and dictionaries of lists."""
    if isinstance(source, dict):
        source = list(cast("dict[str, object]", source).values())
    if isinstance(source, list):
        return frozenset[Place]().union(*(_places(one, places) for one in cast("list[object]", source)))
    return frozenset({places[str(source)]}) if str(source) in places else frozenset()

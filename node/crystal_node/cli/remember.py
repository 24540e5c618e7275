"""``crystal remember``: keeps a sentence as a memory, on every device."""

from enum import StrEnum
from typing import Annotated

import typer

from crystal_node.cli.options import Agent, Debug, Json
from crystal_node.cli.output import emit, say


class Category(StrEnum):
    """What kind of thing is remembered."""

    FACT = "fact"
    PREFERENCE = "preference"
    EVENT = "event"
    OPINION = "opinion"
    SKILL = "skill"


Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input.")
]
CategoryOption = Annotated[Category, typer.Option("--category", help="What kind of thing it is.")]


def run(
    text: Text,
    category: CategoryOption = Category.FACT,
    agent: Agent = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Keep a sentence for good, on every device. It lifts an earlier forget of the same text.

    Example:

        crystal remember "The staging database is restored every night at two." --category fact
    """
    from hashlib import sha256

    from crystal_mirror.operations import Remember
    from crystal_node.clock import now_ms
    from crystal_node.device import opened
    from crystal_node.privacy import PrivateNow, read_privacy
    from crystal_node.recording import clean_text
    from crystal_node.settings import Flags, resolve
    from crystal_node.wording import counted

    settings = resolve(Flags(agent=agent))
    cleaned = clean_text(_given(text))
    with opened(settings) as device:

        def refuse_private() -> None:
            if read_privacy(device.journal).on:
                raise PrivateNow("private mode is on: nothing is recorded")

        operation = Remember(cleaned.text, category.value, settings.agent_id, now_ms())
        device.accept([operation], refuse_private)
    identity = sha256(cleaned.text.encode()).hexdigest()
    if as_json:
        emit(
            {
                "id": identity,
                "category": category.value,
                "agent": settings.agent_id,
                "redacted": cleaned.counts.total(),
            }
        )
        return
    say(f"Remembered as {identity[:12]}. Other devices have it after their next sync.")
    if cleaned.counts:
        say(f"{counted(cleaned.counts.total(), 'credential')} in it blanked out.")


def _given(text: str) -> str:
    if text != "-":
        return text
    import sys

    from crystal_mirror.operations import PIECE_BYTES_MAX

    return sys.stdin.read(PIECE_BYTES_MAX + 1)

"""Noting what a session was given, so that it is not given twice, and logging it.

A prompt's first words are kept on this device alone, with credentials blanked out, until the prompt itself is captured; nothing
of it where nothing is recorded, as in private mode.
"""

from crystal_node.base.settings import Settings
from crystal_node.base.wording import one_line
from crystal_node.capture.redaction import redact
from crystal_node.device.privacy import peek_privacy
from crystal_node.search.recall.database import PROMPT_CHARS, Noted, RecallDatabase
from crystal_node.search.recall.hook import Recalled

REDACTED_CHARS = 2_000
"""Of a prompt, in which credentials are looked for: one that begins among the first words ends there."""
_RECORDING = "claude-code"
"""The tool whose hooks these are."""


def told(recalled: Recalled, settings: Settings, now_ms: int) -> Noted | None:
    """Note and log what a session was given. What cannot be noted is given again. Returns what was logged, for ``untold``.

    Raises OSError, apsw.Error, LocalStorage."""
    if not recalled.session or not (recalled.given or recalled.mode):
        return None
    database = RecallDatabase.open(settings.home.recall_database)
    try:
        if recalled.given:
            database.note(recalled.session, recalled.ids, now_ms)
        return database.add(recalled, first_words(recalled, settings), now_ms)
    finally:
        database.close()


def untold(recalled: Recalled, settings: Settings, noted: Noted | None) -> None:
    """It was not given after all. ``noted``: what ``told`` logged, None if it could not. Raises OSError, apsw.Error,
    LocalStorage."""
    if not recalled.session or not (recalled.given or recalled.mode):
        return
    database = RecallDatabase.open(settings.home.recall_database)
    try:
        if recalled.given:
            database.strike(recalled.session, recalled.ids)
        if noted is not None:
            database.take_back(noted)
    finally:
        database.close()


def first_words(recalled: Recalled, settings: Settings) -> str:
    """The first words of the prompt, as they may be kept; "" where there are none."""
    capture = settings.capture
    if not recalled.prompt or not recalled.given or not capture.on or _RECORDING in capture.without:
        return ""
    if peek_privacy(settings.home.state_database).on:
        return ""
    return one_line(redact(recalled.prompt[:REDACTED_CHARS]).text, PROMPT_CHARS)

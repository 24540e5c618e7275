"""Where files that are made from the memory stand, below the home. Names come from ``capture.agents`` alone."""

import re

from crystal_node.base.agent_names import folder_name, session_name
from crystal_node.derive.artefacts.writer import ArtefactPlace
from crystal_node.sync.artefact_seal import ArtefactForm

_NAME = "[a-z0-9][a-z0-9._-]*"
_MADE = re.compile(
    rf"agents/{_NAME}/memory/(?:transcripts/{_NAME}\.jsonl|sessions/(?:\d{{4}}-\d\d-\d\d|undated)-{_NAME}\.md"
    r"|daily/\d{4}-\d\d-\d\d\.md)"
)


def staged_transcript(agent: str, session: str) -> ArtefactPlace:
    return ArtefactPlace(
        f"{staging_folder(agent)}/transcripts/{session_name(session)}.jsonl", ArtefactForm.JSON_LINES
    )


def transcript_place(agent: str, session: str) -> ArtefactPlace:
    return ArtefactPlace(
        f"{_memory(agent)}/transcripts/{session_name(session)}.jsonl", ArtefactForm.JSON_LINES
    )


def summary_place(agent: str, session: str, day: str) -> ArtefactPlace:
    return ArtefactPlace(f"{_memory(agent)}/sessions/{summary_name(session, day)}", ArtefactForm.MARKDOWN)


def summary_name(session: str, day: str) -> str:
    return f"{day}-{session_name(session)}.md"


def daily_place(agent: str, day: str) -> ArtefactPlace:
    return ArtefactPlace(f"{_memory(agent)}/daily/{day}.md", ArtefactForm.MARKDOWN)


def staging_folder(agent: str) -> str:
    return f"staging/{folder_name(agent)}"


def is_made_here(path: str) -> bool:
    """Whether a file of the home has the name of one that the Core makes: it is made anew when a text in it is forgotten."""
    return _MADE.fullmatch(path) is not None


def _memory(agent: str) -> str:
    return f"agents/{folder_name(agent)}/memory"

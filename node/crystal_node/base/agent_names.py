"""Names of agents and sessions, and the files and folders that are named after them.

Transcripts and other devices name agents and sessions by arbitrary text; only this module makes paths of it. Names that are
valid file names on every system are used as they are:

    agent_id       letters, digits, dots, underscores and hyphens, a letter or digit first, 64 at most; no device name of
                   Windows, no dot at the end
    folder, file   the same in lower case, since some file systems ignore case

Any other text becomes its allowed characters, a hyphen, and 16 hex digits of its SHA-256. So does a name that already ends in
such digits: no text can be written so that it shares another's folder.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crystal_node.base.home import Home

AGENT_CHARS_MAX = 64
FORMER_DEFAULT = "cc-mini"
"""Former default name of Claude Code's agent. Homes that were set up with it keep it."""
CLAUDE_CODE = "claude-code"
"""Its default name now."""
DIGEST_CHARS = 16
"""Of its SHA-256: 64 bits, so that nobody finds a second name for another's folder."""

_CLEAN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MARKED = re.compile(rf".*-[0-9a-f]{{{DIGEST_CHARS}}}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_NAMELESS = "unnamed"


def agent_id(text: str, fallback: str) -> str:
    """The id of the agent that a transcript or folder names: ``text`` if it is one, ``fallback`` if it is empty, else one made
    of it."""
    if not text.strip():
        return fallback
    return text if _is_clean(text) else _marked(text)


def agent_alias(agent: str) -> str | None:
    """The other name of the same agent: what one device records under the former default, another one records under the
    tool's name. None if it has no other."""
    return {FORMER_DEFAULT: CLAUDE_CODE, CLAUDE_CODE: FORMER_DEFAULT}.get(agent)


def agent_folder(home: "Home", agent: str) -> Path:
    """The folder of an agent's files."""
    return home.root / "agents" / folder_name(agent)


def folder_name(agent: str) -> str:
    """The name of an agent's folder below ``agents/`` and ``staging/``."""
    return _file_name(agent)


def session_name(session: str) -> str:
    """A session's name as a file name, without its ending."""
    return _file_name(session)


def _file_name(text: str) -> str:
    plain = _is_clean(text) and text == text.lower() and not _MARKED.fullmatch(text)
    return text if plain else _marked(text).lower()


def _is_clean(text: str) -> bool:
    from crystal_mirror.file_paths import (
        fault_of,  # lazy: a search that prints names of agents makes no files
    )

    return _CLEAN.fullmatch(text) is not None and fault_of(text) is None


def _marked(text: str) -> str:
    from hashlib import sha256  # lazy, as above

    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
    # Without dots: `con.` and `con.txt` are the device `con` to Windows.
    left = _OTHER.sub("-", text).replace(".", "-").strip("-_")[: AGENT_CHARS_MAX - DIGEST_CHARS - 1]
    return f"{left.rstrip('-_') or _NAMELESS}-{digest}"

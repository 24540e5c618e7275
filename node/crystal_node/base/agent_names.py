"""Names of agents and sessions, and the files and folders that are named after them.

Who wrote a transcript, and what a row of another device carries as its agent or session, is any text at all. Nothing but
this module makes a path of one. Names that are file names on every system stand for themselves:

    agent_id       letters, digits, dots, underscores and hyphens, a letter or digit first, 64 at most; no name that Windows
                   keeps for a device, no dot at the end
    folder, file   the same in lower case, since case does not count everywhere

Any other text becomes what is left of it, a hyphen, and 16 hex digits of its SHA-256. A name that ends like that already gets
digits of its own, so that no text can be made to share the folder of another by how it is written.
"""

import re
from hashlib import sha256
from pathlib import Path

from crystal_mirror.file_paths import fault_of
from crystal_node.base.home import Home

AGENT_CHARS_MAX = 64
DIGEST_CHARS = 16
"""Of its SHA-256: 64 bits, so that nobody finds a second name for another's folder."""

_CLEAN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MARKED = re.compile(rf".*-[0-9a-f]{{{DIGEST_CHARS}}}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_NAMELESS = "unnamed"


def agent_id(text: str, fallback: str) -> str:
    """The agent that a transcript or a folder names: ``text`` if it is an id, ``fallback`` if it is empty, else an id made
    of it."""
    if not text.strip():
        return fallback
    return text if _is_clean(text) else _marked(text)


def agent_folder(home: Home, agent: str) -> Path:
    """Where an agent's files are, whatever it is called."""
    return home.root / "agents" / folder_name(agent)


def folder_name(agent: str) -> str:
    """The name of an agent's folder, below ``agents/`` as below ``staging/``."""
    return _file_name(agent)


def session_name(session: str) -> str:
    """A session's name as (the part before the dot of) a file name."""
    return _file_name(session)


def _file_name(text: str) -> str:
    plain = _is_clean(text) and text == text.lower() and not _MARKED.fullmatch(text)
    return text if plain else _marked(text).lower()


def _is_clean(text: str) -> bool:
    return _CLEAN.fullmatch(text) is not None and fault_of(text) is None


def _marked(text: str) -> str:
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
    # A dot would keep what stands before it a device's name: `con.` and `con.txt` are `con` to Windows.
    left = _OTHER.sub("-", text).replace(".", "-").strip("-_")[: AGENT_CHARS_MAX - DIGEST_CHARS - 1]
    return f"{left.rstrip('-_') or _NAMELESS}-{digest}"

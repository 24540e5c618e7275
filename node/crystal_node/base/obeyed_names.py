"""Names that programs execute or obey only because a file is called so: not applied from other devices by themselves.

Three kinds. Hidden names, all of them: they are by convention what programs read and people do not see (``.git``, ``.envrc``,
``.vscode``, ``.claude``), and each year brings new ones. Names without a dot that belong to the same kind. And the short names
(``GIT~1``) by which some file systems reach any name.

What a person has to name in a command (``make``, ``npm install``, ``pytest``) is not among them: whoever builds or runs what
another device sent runs its code, whatever its files are called. See ``docs/decisions/0056-files-that-programs-obey.md``.
"""

import re
import unicodedata
from collections.abc import Sequence

IGNORED_CHARACTERS = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
"""Characters that some file systems (HFS+) ignore in names: a path with one of them could name another file."""

_HARMLESS = frozenset({".gitignore", ".gitkeep", ".keep", ".ignore", ".crystalignore", ".editorconfig"})
"""Hidden names that at most leave files out, or say how text is indented."""
_ANYWHERE = ("node_modules", "_darcs")
_LAST = (
    "head",  # git takes a folder with HEAD, objects and refs for a repository, whatever it is called
    *("_fossil_", "_vimrc", "_gvimrc", "_exrc"),
    *("claude.md", "claude.local.md", "agents.md", "agents.override.md", "agent.md", "gemini.md", "crush.md", "warp.md"),
    *("mcp.json", "opencode.json", "opencode.jsonc", "crush.json", "mise.toml", "mise.local.toml"),
    *("desktop.ini", "autorun.inf"),
)  # fmt: skip
_ENDINGS = ("code-workspace", "lnk", "scf", "library-ms", "searchconnector-ms")


def _alternatives(names: Sequence[str]) -> str:
    return "|".join(map(re.escape, names))


_SHORT = r"[^./~]{1,6}~[0-9]{1,6}(?:\.[^./]{0,3})?"
_COMPONENT = re.compile(rf"(?:\..*|{_alternatives(_ANYWHERE)}|{_SHORT})", re.DOTALL)
_LAST_COMPONENT = re.compile(
    rf"(?:{_COMPONENT.pattern}|{_alternatives(_LAST)}|.*\.(?:{_alternatives(_ENDINGS)}))", re.DOTALL
)
_PERHAPS = re.compile(
    rf"[^\x00-\x7f]|~[0-9]|(?:^|/)(?:\.|(?:{_alternatives((*_ANYWHERE, *_LAST))})(?:/|$))|\.(?:{_alternatives(_ENDINGS)})$",
    re.IGNORECASE,
)
"""Found in every path that has such a name; most paths have nothing of it."""


def obeyed_part(path: str) -> str | None:
    """The path up to the first name that programs execute or obey; None if there is none.

    Names are compared as the most lenient file system does: without case, in compatible composition, without characters that
    it ignores.
    """
    if _PERHAPS.search(path) is None:
        return None
    components = path.split("/")
    for depth, component in enumerate(components, 1):
        form = name_form(component)
        pattern = _LAST_COMPONENT if depth == len(components) else _COMPONENT
        if pattern.fullmatch(form) and form not in _HARMLESS:
            return "/".join(components[:depth])
    return None


def name_form(name: str) -> str:
    """A name as the most lenient file system sees it: two names with equal forms may be one file."""
    if name.isascii():
        return name.lower()
    bare = IGNORED_CHARACTERS.sub("", name)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", bare).casefold())


def is_allowed(part: str, allowed: Sequence[str]) -> bool:
    """Whether a person of this device has allowed it: by its name, by its path, or by that of a folder above it."""
    forms = path_form(part)
    for each in allowed:
        wanted = path_form(each)
        if forms[: len(wanted)] == wanted or (len(wanted) == 1 and forms[-1:] == wanted):
            return True
    return False


def path_form(path: str) -> list[str]:
    """The forms of a path's names, in order."""
    return [name_form(component) for component in path.split("/")]

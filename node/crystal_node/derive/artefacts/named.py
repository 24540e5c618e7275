"""Files and commands that texts name, found without understanding a word: for summaries that extract.

Bounded: what a conversation of any length names costs memory for ``NAMES_MAX`` of each, the first ones.
"""

import re

NAMES_MAX = 40
LINE_CHARS_MAX = 200

_ENDINGS = (
    "c cc cfg conf cpp css csv go h hpp html ini ipynb java js json jsonl jsx kt lock log md mjs php pl plist proto"
    " ps1 py pyi rb rs rst sh sql svg swift toml ts tsx txt vue xml yaml yml zig"
)
_FILE = re.compile(
    r"(?<![\w/\\.@:~+-])(?:~/|\.{1,2}/|/)?(?:[\w.+@-]{1,80}/){0,12}[\w.+@-]{1,80}\.(?:"
    + "|".join(_ENDINGS.split())
    + r")(?![\w/-])"
)
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[ \t]*([A-Za-z0-9_+-]{0,20})[^\n]{0,200}$")
_SHELLS = frozenset({"bash", "fish", "powershell", "sh", "shell", "zsh"})
"""Whose blocks hold commands and nothing else. In all others, and outside, a command stands behind ``$``."""


class Named:
    """Gathers from text after text. ``files`` and ``commands`` in the order of their first mention, with how often."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.commands: dict[str, int] = {}

    def take(self, text: str) -> None:
        for found in _FILE.finditer(text):
            _count(self.files, found[0])
        inside: str | None = None
        for line in text.splitlines():
            fence = _FENCE.match(line)
            if fence is not None:
                inside = fence[1].lower() if inside is None else None
                continue
            stripped = line.strip()
            if stripped.startswith("$ "):
                _count(self.commands, stripped[2:].strip())
            elif inside in _SHELLS and stripped and not stripped.startswith("#"):
                _count(self.commands, stripped)


def _count(names: dict[str, int], name: str) -> None:
    if not name or len(name) > LINE_CHARS_MAX:
        return
    if name in names or len(names) < NAMES_MAX:
        names[name] = names.get(name, 0) + 1

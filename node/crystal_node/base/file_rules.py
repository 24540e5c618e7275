"""Which paths belong to the file tree, and which of them a person has excluded on this device.

The tree is the memory home without Crystal's own files: settings, databases, state, staging, logs, programs, keys, the trash,
the marker, and temporary files. Those are never written by a sync either, in whatever case a path names them.

Of a person's rules the last one that matches decides: ``-PATTERN`` excludes, ``+PATTERN`` includes again. Patterns are globs:
``*`` and ``?`` within a name, ``**`` across folders; one without a slash matches a name at any depth, and one that matches a
folder covers everything in it.

Names that programs execute or obey (``obeyed_names``) are held back until a person of this device has allowed them. A pattern
allows nothing.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from crystal_mirror.file_paths import fault_of, folded
from crystal_node.base.obeyed_names import IGNORED_CHARACTERS, is_allowed, obeyed_part
from crystal_node.base.settings.checks import FILE_PATTERN_CHARS_MAX

_BETWEEN_STARS = re.compile(r"\*([^*]+)(?=\*(?!\*/))")
TEMPORARY_PREFIX = ".crystal-tmp-"
MARKER_NAME = ".crystal-root"
TRASH_NAME = ".trash"

_OWN = frozenset(
    {"config.json", "state", "staging", "logs", "bin", "drop", "keys", "secrets", TRASH_NAME, MARKER_NAME}
)
_OWN_PREFIXES = (".config.json.", f".{MARKER_NAME}.")
"""Of files that a crash leaves while one of these is written."""
_DATABASE_MARK = ".db"
_KEYS_MARK = ".env"
"""Beside a database: API keys, and the copies that editors make of such a file."""
_SCRATCH_MARK = ".restoring"
"""Beside a database: the folder in which other homes' databases are copied."""


@dataclass(frozen=True)
class TreeRules:
    """``databases``: case-folded folders of the home that hold databases; ``secrets``: files that hold secrets.

    ``allowed``: of the names that programs execute or obey those that are synced here, each with all that lies below it. None:
    nothing is held back, for what stays on this device.
    """

    patterns: tuple[str, ...] = ()
    databases: frozenset[str] = frozenset({"memory"})
    secrets: frozenset[str] = frozenset()
    allowed: tuple[str, ...] | None = None

    def is_own(self, path: str) -> bool:
        """Whether the path is Crystal's own, or lies in a folder that is."""
        form = folded(IGNORED_CHARACTERS.sub("", path))
        components = form.split("/")
        if components[0] in _OWN or components[0].startswith(_OWN_PREFIXES):
            return True
        if any(component.startswith(TEMPORARY_PREFIX) for component in components):
            return True
        for depth, component in enumerate(components):
            if component == _SCRATCH_MARK and "/".join(components[:depth]) in self.databases:
                return True
        folder, _, name = form.rpartition("/")
        beside = folder in self.databases and (_DATABASE_MARK in name or _KEYS_MARK in name)
        return beside or form in self.secrets

    def has_own_in(self, folder: str) -> bool:
        """Whether a plain name in this case-folded folder may be Crystal's own."""
        return folder in self.databases or any(secret.rpartition("/")[0] == folder for secret in self.secrets)

    def fault(self, path: str) -> str | None:
        """Why a file of that path may not be synced; None if it may."""
        return fault_of(path) or ("its place is Crystal's own" if self.is_own(path) else None)  # §14-5

    def excluded(self, path: str) -> bool:
        verdict = False
        for includes, expression in self._compiled:
            if verdict is includes and expression.fullmatch(path):
                verdict = not includes
        return verdict

    def held(self, path: str) -> str | None:
        """The path up to the name for which it is held back; None if it is not."""
        if self.allowed is None:
            return None
        part = obeyed_part(path)
        return None if part is None or is_allowed(part, self.allowed) else part

    @cached_property
    def fingerprint(self) -> bytes:
        return sha256("\0".join((*self.patterns, "", *(self.allowed or ()))).encode()).digest()

    @cached_property
    def _compiled(self) -> list[tuple[bool, re.Pattern[str]]]:
        return [(rule.startswith("+"), re.compile(_expression(rule[1:]))) for rule in self.patterns]


def held_reason(part: str) -> str:
    """Why a path is not synced, with the command that allows it."""
    return f"programs execute or obey what has such a name; {allow_command(part)} lets it be synced here"


def allow_command(part: str) -> str:
    """The command that allows a part, for a person."""
    return f"`crystal files allow {shlex.quote(part)}`"


def pattern_fault(pattern: str) -> str | None:
    """Why this is no pattern; None if it is one."""
    if not pattern.strip("/"):
        return "a pattern names a file or a folder"
    if len(pattern) > FILE_PATTERN_CHARS_MAX:
        return f"a pattern has at most {FILE_PATTERN_CHARS_MAX} characters"
    if pattern.startswith("/") or ".." in pattern.split("/") or any(ord(char) < 32 for char in pattern):
        return "a pattern is relative to the home, without .. and control characters"
    if pattern.count("*") > 16:
        return "a pattern has at most 16 stars"
    return None


def with_rule(rules: Sequence[str], pattern: str, *, exclude: bool) -> tuple[str, ...]:
    """The rules with one more. A rule that only undoes another one replaces it."""
    mine, other = ("-" if exclude else "+") + pattern, ("+" if exclude else "-") + pattern
    kept = [rule for rule in rules if rule not in (mine, other)]
    if exclude or len(kept) == len(rules) or any(TreeRules((rule,)).excluded(pattern) for rule in kept):
        kept.append(mine)
    return tuple(kept)


def _expression(pattern: str) -> str:
    pattern = pattern.rstrip("/")
    anywhere = "/" not in pattern
    out = "(?:.*/)?" if anywhere else ""
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif found := _BETWEEN_STARS.match(pattern, at):
            # The first match will do, because what follows matches anything: no name can cause backtracking.
            fixed = "".join("[^/]" if char == "?" else re.escape(char) for char in found[1])
            out, at = out + f"(?>[^/]*?{fixed})", found.end()
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return out + "(?:/.*)?"

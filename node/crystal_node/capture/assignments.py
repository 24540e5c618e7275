"""Secrets that are assigned: ``password = "…"``, ``"api_key": "…"``, ``DB_PASSWORD=…``, ``--token …``.

Names that end like a secret's are looked for in lower case; then comes a sign of assignment; then the value, and how it is
written decides what it must look like to be taken for a secret (``plausible.py``). Linear in the text, as in ``rules.py``.
"""

import re
from collections.abc import Callable, Iterator

from crystal_node.capture.plausible import machine_made, mixed, quoted, value

ASSIGNED_KIND = "assigned-secret"

Accepts = Callable[[str], bool]

_ASSIGNS = (
    r"[\\\"'\]]{0,3}"  # the end of a quoted name, or of an index
    r"(?::\s{0,2}(?:str|string|secretstr)(?=\s{0,2}=))?"  # a type
    r"(?P<sign>\s{0,4}(?:=>|:=|={1,3}|:)\s{0,4})"
)
_VALUE = (
    r"(?:\\?(?P<quote>[\"'`])(?P<quoted>[^\"'`\s\\]{6,400}+)\\?(?P=quote)"
    r"|(?P<bare>[^\s\"'`,;&|(){}\[\]<>]{6,400}+)(?![(\[{<]))"
)
_QUALIFIERS = (
    *("api", "access", "secret", "private", "auth", "account"),
    *("encryption", "signing", "master", "service", "license"),
)
_QUALIFIED = "|".join(f"(?<={word}{joint}key)" for word in _QUALIFIERS for joint in ("", "_", "-"))


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(name + f"(?:{_ASSIGNS}{_VALUE})", re.ASCII)


_PASSWORDS = (
    _pattern(r"pass(?:w(?:or)?d|phrase|(?<![a-z]pass))"),
    _pattern(r"pwd(?<![a-z]pwd)"),
)
_KEYS = (
    _pattern("secret"),
    _pattern("token"),
    _pattern("credentials?"),
    _pattern(f"key(?:{_QUALIFIED})"),
)
_OPTIONS = re.compile(
    r"--[a-z-]{0,20}(?:password|passwd|passphrase|secret|token|api-?key)[ =][\"']?(?P<bare>[^\s\"'`,;&|(){}\[\]<>]{6,400}+)",
    re.ASCII,
)


def assigned_secrets(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Where the values stand. ``lowered`` is the text in lower case, character for character."""
    for patterns, unquoted, shouted in ((_PASSWORDS, mixed, value), (_KEYS, machine_made, mixed)):
        for pattern in patterns:
            for match in pattern.finditer(lowered):
                yield from _accepted(text, match, unquoted, shouted)
    for match in _OPTIONS.finditer(lowered):
        start, end = match.span("bare")
        if mixed(text[start:end]):
            yield start, end


def _accepted(
    text: str, match: re.Match[str], unquoted: Accepts, shouted: Accepts
) -> Iterator[tuple[int, int]]:
    """The value's place, if it passes what its writing asks for: in quotes, behind ``NAME=``, or neither."""
    if match["quoted"] is not None:
        start, end = match.span("quoted")
        accepts: Accepts = quoted
    else:
        start, end = match.span("bare")
        accepts = shouted if match["sign"] == "=" and text[match.start()].isupper() else unquoted
    if accepts(text[start:end]):
        yield start, end

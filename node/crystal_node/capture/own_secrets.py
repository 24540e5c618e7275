"""Crystal's own secrets, as it prints them: the lines of a recovery kit, pairing codes, invites, tokens.

A kit's line is known by its check, whatever stands around it: alone, without its number, quoted, in a table, wrapped. What is
wrapped is read as its reader would read it, without separators and marks of quotation. Only a line that was typed in lower case
with spaces, like words, is not looked for.
"""

import re
import string
from collections.abc import Iterator

from crystal_crypto.errors import BadCode
from crystal_crypto.kit import line_place
from crystal_crypto.short_invite import decode_short_invite

KIT_KIND = "crystal-kit"

_CHAR = "[0-9A-TV-Za-tv-z]"
# A line of a mail breaks anywhere; marks of quotation and tables stand before what follows.
_BREAK = r"(?:[ \t\u00a0]{0,4}+\r?\n[ \t>|*#/+-]{0,12}+)?"
_BETWEEN = r"(?:[ \t\u00a0-]{1,4}+(?:\r?\n[ \t>|*#/+-]{0,12}+)?|\r?\n[ \t>|*#/+-]{0,12}+)"
_GROUP = _BREAK.join([_CHAR] * 4)
_GROUPS = re.compile(rf"(?<![0-9A-Za-z]){_GROUP}(?:{_BETWEEN}{_GROUP}){{3,}}+(?![0-9A-Za-z])")
"""Four groups of four characters or more, as a kit's line has."""
_ONE_GROUP = re.compile(_GROUP)
_DASHED = re.compile(rf"-({_CHAR}{{4}})(?![0-9A-Za-z])")
_CAPITALS = re.compile(r"\n[0-9A-TV-Z]{4}(?=\n)")
_SPACED = re.compile(r" [0-9A-TV-Z]{4}(?=[ \r\n])")
_NEAR_CHARS = 90
"""A line is looked for so near to a group that could be one of its."""
_WORD = re.compile(rf"(?<![0-9A-Za-z]){_CHAR}{{16}}(?![0-9A-Za-z])")
_NO_CHAR = re.compile(r"[^0-9A-Za-z]+")
_NEXT_LINE = r"[ \t]{0,3}+\r?\n[ \t>|]{0,8}+"
_INVITE = re.compile(
    rf"(?<![A-Za-z0-9])[mM][cC]2:(?:[ \t]?[A-Za-z2-7-]{{16,}}+=*+(?:{_NEXT_LINE}[A-Za-z2-7-]{{16,}}+=*+){{0,40}}+"
    rf"(?:{_NEXT_LINE}[A-Z2-7]{{1,15}}+=*+(?![A-Za-z0-9]))?+"
    r"|(?:[ \t\r\n>|-]{0,8}+[A-Z2-7]{2,8}(?![A-Za-z0-9])){8,200}+)"
)
_CODE = re.compile(
    rf"(?<![A-Za-z0-9])[mM][cC][13]:(?P<secret>(?:[A-Za-z0-9+/_-]{_BREAK}){{42}}[A-Za-z0-9+/_-]*+={{0,2}})"
)
_SHORT_KEY = re.compile(r"/[0-9A-HJKMNP-TV-Z]{4}(?:-[0-9A-HJKMNP-TV-Z]{4}){2}(?![0-9A-Za-z-])")
_SHORT_ADDRESS = string.ascii_letters + string.digits + "._~:[]/-"
_SHORT_ADDRESS_CHARS_MAX = 208


def own_secrets(text: str, words: str, long_words: str) -> Iterator[tuple[int, int, str]]:
    """Spans of Crystal's own secrets, and their kinds.

    ``words``: the text's distinct words; ``long_words``: those that could be tokens.
    """
    yield from _kit_lines(text, words, long_words)
    if any(prefix in words for prefix in ("mc3:", "MC3:", "mc1:", "MC1:")):
        yield from ((*match.span(), "crystal-code") for match in _CODE.finditer(text))
    if "MC2:" in words or "mc2:" in words:
        yield from ((*match.span(), "crystal-invite") for match in _INVITE.finditer(text))
    if _SHORT_KEY.search(words):
        yield from _short_invites(text)


def _short_invites(text: str) -> Iterator[tuple[int, int, str]]:
    """Short invites as they are printed, known by their check: an address with a serial number behind it stays."""
    for key in _SHORT_KEY.finditer(text):
        before = text[max(0, key.start() - _SHORT_ADDRESS_CHARS_MAX) : key.start()]
        start = len(before.rstrip(_SHORT_ADDRESS))
        start += before[start - 1 : start] == "\\"  # the letter is that of an escape, as in JSON
        written = before[max(start, before.find("http", start)) :].lstrip("._~:]/-")
        try:
            decode_short_invite(written + key[0])
        except BadCode:
            continue
        yield key.start() - len(written), key.end(), "crystal-invite"


def _kit_lines(text: str, words: str, long_words: str) -> Iterator[tuple[int, int, str]]:
    lines = {word for word in {*_WORD.findall(long_words)} if not word.islower() and _is_line(word)}
    if lines:
        yield from ((*found.span(), KIT_KIND) for found in _WORD.finditer(text) if found[0] in lines)
    hints = [hint.start() for hint in _DASHED.finditer(text) if _could_be(hint[1])]
    if len(_CAPITALS.findall(words)) >= 3:
        hints += [hint.start() for hint in _SPACED.finditer(text)]
    end = 0
    for hint in sorted(hints):
        if hint + _NEAR_CHARS // 2 <= end:
            continue
        start = max(end, hint - _NEAR_CHARS)
        end = hint + _NEAR_CHARS
        # A line that reaches over the edge of what was looked at before begins in it.
        for run in _GROUPS.finditer(text, max(0, start - _NEAR_CHARS), end):
            yield from _lines_among([*_ONE_GROUP.finditer(text, *run.span())], text)


def _could_be(group: str) -> bool:
    return not group.isdigit() and not (group.isalpha() and group.islower())


def _lines_among(groups: list[re.Match[str]], text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at + 4 <= len(groups):
        start, end = groups[at].start(), groups[at + 3].end()
        if _is_line(text[start:end]):
            yield start, end, KIT_KIND
            at += 4
        else:
            at += 1


def _is_line(written: str) -> bool:
    return line_place(_NO_CHAR.sub("", written)) is not None

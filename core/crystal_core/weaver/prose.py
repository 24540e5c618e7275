"""Sanitising of a model's prose for a file: nothing that a Markdown viewer loads, runs or hides.

Removes control characters and direction overrides, HTML, images (a viewer would fetch them and leak the transcripts in their
address), links behind a text, headings and unclosed code blocks.
"""

import re
import unicodedata

_KEPT = frozenset("\n\t")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=#)")
_IMAGE = re.compile(r"!(?=\[)")
_LINK = re.compile(r"\](?=[(\[:])")
_HEADING = re.compile(r"^[^\S\n]{0,3}(?:>[^\S\n]*+)?#{1,6}(.*)$", re.MULTILINE)
_UNDERLINE = re.compile(r"^\s{0,3}(=+|-+)\s*$", re.MULTILINE)
_FENCE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)
_BLANK = re.compile(r"\n{3,}")


def whole(text: str) -> str:
    """Remove lone surrogates, control characters and direction marks."""
    kept = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    return "".join(
        char for char in kept if char in _KEPT or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cn")
    )


def _bold(heading: re.Match[str]) -> str:
    """Turn a heading into bold text, in linear time for any input."""
    return f"**{heading[1].strip().rstrip('#').strip()}**"


def one_line(text: str, chars_max: int) -> str:
    """Return the text on one line, truncated, safe for a list."""
    flat = " ".join(whole(text).split())
    flat = flat if len(flat) <= chars_max else flat[: chars_max - 1].rstrip() + "…"
    return _disarmed(flat.lstrip("#> ")).strip()


def paragraphs(text: str, bytes_max: int) -> str:
    """Return prose of several lines, truncated after a whole line."""
    clean = _HEADING.sub(_bold, whole(text)).replace("****", "")
    clean = _UNDERLINE.sub("", clean)
    clean = _BLANK.sub("\n\n", _disarmed(clean)).strip()
    clean = cut(clean, bytes_max)
    return clean + "\n```" if len(_FENCE.findall(clean)) % 2 else clean


def cut(text: str, bytes_max: int) -> str:
    """Truncate to ``bytes_max``, after a whole line if possible."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    short = data[:bytes_max].decode("utf-8", "ignore")
    lines, _, _ = short.rpartition("\n")
    return (lines or short).rstrip()


def _disarmed(text: str) -> str:
    """Escape Markdown without backslashes, which a preceding backslash would defeat."""
    for pattern, replacement in ((_ENTITY, "&amp;"), (_TAG, "&lt;"), (_IMAGE, "! "), (_LINK, "] ")):
        text = pattern.sub(replacement, text)
    return text

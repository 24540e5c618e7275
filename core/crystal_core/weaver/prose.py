"""What a model wrote, made safe to stand in a file: text, and nothing that a viewer of Markdown loads, runs or hides.

No control characters and no direction overrides; no HTML, no image (a viewer would fetch it, and tell with its address what
the transcripts hold), no link behind a text, no heading among our own, no code block that never ends.
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
    """Only characters that say something: no halves of surrogates, no controls, no marks that turn the direction."""
    kept = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    return "".join(
        char for char in kept if char in _KEPT or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cn")
    )


def _bold(heading: re.Match[str]) -> str:
    """In linear time, whatever the model put between the words and the line's end."""
    return f"**{heading[1].strip().rstrip('#').strip()}**"


def one_line(text: str, chars_max: int) -> str:
    """The text on one line, cut, as it may stand in a list."""
    flat = " ".join(whole(text).split())
    flat = flat if len(flat) <= chars_max else flat[: chars_max - 1].rstrip() + "…"
    return _disarmed(flat.lstrip("#> ")).strip()


def paragraphs(text: str, bytes_max: int) -> str:
    """Prose of several lines, cut behind a whole line."""
    clean = _HEADING.sub(_bold, whole(text)).replace("****", "")
    clean = _UNDERLINE.sub("", clean)
    clean = _BLANK.sub("\n\n", _disarmed(clean)).strip()
    clean = cut(clean, bytes_max)
    return clean + "\n```" if len(_FENCE.findall(clean)) % 2 else clean


def cut(text: str, bytes_max: int) -> str:
    """So many bytes at most, whole lines if there are any."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    short = data[:bytes_max].decode("utf-8", "ignore")
    lines, _, _ = short.rpartition("\n")
    return (lines or short).rstrip()


def _disarmed(text: str) -> str:
    """Not by backslashes: one that stands before it already would turn ours into text."""
    for pattern, replacement in ((_ENTITY, "&amp;"), (_TAG, "&lt;"), (_IMAGE, "! "), (_LINK, "] ")):
        text = pattern.sub(replacement, text)
    return text

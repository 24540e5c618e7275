"""Verification of quotations: text in quotation marks or block quotes must be in the source, or it is removed.

Characters are compared exactly, except that runs of white space count as one space. A quotation with a corrected typing error,
an omitted word or a changed mark is not exact. Inexact ones are removed and counted: a short term loses its marks, anything
longer is replaced by a note. Unpaired marks are removed too, because they would change the pairing in a viewer.
"""

import re
from collections.abc import Callable, Iterable

TAKEN_OUT = "[a quotation that is in no transcript was taken out]"
LEFT_OUT = "[a quotation was left out here; the journal has it]"
TERM_WORDS_MAX = 2
"""Up to this many words between marks are a term, not a quotation."""

_QUOTED = re.compile(
    r"“(?P<a>[^“”]*)”|„(?P<b>[^„“”]*)[“”]|«(?P<c>[^«»]*)»|»(?P<d>[^«»]*)«|「(?P<e>[^「」]*)」|\"(?P<f>[^\"]*)\""
    r"|‘(?P<g>[^‘\n]{3,}?)’(?!\w)|(?<![\w'])'(?P<h>[^'\n]{1,2000}(?:'\w[^'\n]{0,2000}){0,50})'(?![\w'])"
)
_STRAY = re.compile(r"[“”„«»「」\"]")
_BLOCK = re.compile(r"^[ \t]*>.*(?:\n[ \t]*>.*)*", re.MULTILINE)
_ENDS = ".,;:!?…"
_MARKS = "“”„«»「」\"‘’'"


class Quotable:
    """Texts that may be quoted. ``note`` replaces other quotations."""

    def __init__(self, texts: Iterable[str], note: str = TAKEN_OUT) -> None:
        self.note = note
        self._texts = [flat(text) for text in texts]

    def has(self, quotation: str) -> bool:
        """Whether one of the texts contains exactly these words."""
        wanted = flat(quotation)
        return bool(wanted) and any(_holds(text, wanted) for text in self._texts)

    def exact(self, quotation: str) -> str:
        """Return the quotation without marks or final punctuation that the source lacks; "" if it is not exact."""
        wanted = flat(quotation)
        for candidate in (wanted, wanted.strip(_MARKS).strip(), wanted.strip(_MARKS).strip().rstrip(_ENDS)):
            if candidate and self.has(candidate):
                return candidate
        return ""


def unquoted(text: str) -> str:
    """Remove all quotations, exact or not, for pages that must not keep forgotten messages."""
    return honest(text, NO_QUOTATIONS)[0]


def _holds(text: str, wanted: str) -> bool:
    """Whether the text contains it as whole words, in scripts that separate words."""
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        if not (_joined(text[at - 1 : at], wanted[0]) or _joined(wanted[-1], text[end : end + 1])):
            return True
        at = text.find(wanted, at + 1)
    return False


def _joined(left: str, right: str) -> bool:
    return (left + right).isascii() and left.isalnum() and right.isalnum()


def flat(text: str) -> str:
    return " ".join(text.split())


NO_QUOTATIONS = Quotable((), LEFT_OUT)


def honest(text: str, quotable: Quotable) -> tuple[str, int]:
    """Return the text with only exact quotations, and the number of others removed."""
    cut = 0

    def block(found: re.Match[str]) -> str:
        nonlocal cut
        words = " ".join(line.strip().lstrip(">").strip() for line in found[0].splitlines())
        exact = quotable.exact(words)
        if exact:
            return f"> {exact}"
        cut += 1
        return quotable.note

    def inline(found: re.Match[str]) -> str:
        nonlocal cut
        words = next(group for group in found.groups() if group is not None)
        exact = quotable.exact(words)
        if exact:
            end = words.rstrip()[-1:]
            return f"“{exact}”" + (end if end in _ENDS and not exact.endswith(end) else "")
        if not words.strip():
            return ""
        cut += 1
        return _STRAY.sub("", words) if len(words.split()) <= TERM_WORDS_MAX else quotable.note

    pieces: list[str] = []
    at = 0
    held = _BLOCK.sub(block, text)
    for found in _BLOCK.finditer(held):  # the remaining block quotes are exact
        pieces += [_unstrayed(held[at : found.start()], inline), found[0]]
        at = found.end()
    pieces.append(_unstrayed(held[at:], inline))
    return "".join(pieces), cut


def _unstrayed(text: str, inline: Callable[[re.Match[str]], str]) -> str:
    """Process each paragraph separately, so that an unpaired mark does not pair with a distant one."""
    done: list[str] = []
    for paragraph in re.split(r"(\n[ \t]*\n)", text):
        out, at = "", 0
        for found in _QUOTED.finditer(paragraph):
            out += _STRAY.sub("", paragraph[at : found.start()]) + inline(found)
            at = found.end()
        done.append(out + _STRAY.sub("", paragraph[at:]))
    return "".join(done)

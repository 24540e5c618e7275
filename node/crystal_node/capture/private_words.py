"""Words that a person marked as private in a prompt: ``<private>…</private>``.

They are cut out before the prompt is used for anything; without an end tag, everything after the first one is.
"""

import re

_TAG = re.compile(r"<(/?)private>", re.IGNORECASE)
_LEFT_OUT = re.compile(r"\n{3,}")


def without_private(text: str) -> str:
    """A prompt without what stands between ``<private>`` and ``</private>``, nested ones with what is around them.

    An end without a beginning marks nothing.
    """
    if "<private>" not in text.lower():
        return text
    kept: list[str] = []
    depth = at = 0
    for tag in _TAG.finditer(text):
        if tag[1]:
            if depth == 1:
                at = tag.end()
            depth = max(depth - 1, 0)
        else:
            if not depth:
                kept.append(text[at : tag.start()])
            depth += 1
            at = tag.end()
    if not depth:
        kept.append(text[at:])
    return _LEFT_OUT.sub("\n\n", "".join(kept)).strip()

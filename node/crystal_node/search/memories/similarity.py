"""Which memories say almost the same as a text.

The same words, whatever case, spaces and punctuation, are looked for in all current memories. Beyond that the nearest by search
are compared: by their vectors where both have one (the text's is made by the background service, or here), else by the words
that they share. A number that differs is a difference, however near the rest is: *room 12* is not *room 14*.
"""

import re
import unicodedata

from crystal_core.database import Database
from crystal_core.memories import memories
from crystal_crypto.errors import CrystalError
from crystal_node.base.settings import Settings
from crystal_node.search.finding.client import memory_client
from crystal_node.search.finding.documents import QUERY_CHARS_MAX, Depth, ResultKind, SearchRequest
from crystal_node.search.memories.documents import AlikeDocument, Likeness

COMPARED_MAX = 20_000
"""Memories, the newest first, whose words are compared."""
NEAREST_MAX = 5
SIMILARITY_MIN = 0.9
"""Cosine of two vectors from which on their texts say almost the same."""
OVERLAP_MIN = 0.8
"""Share of all words of two texts that both have."""
WORDS_MIN = 4
"""Texts of fewer words are compared as a whole only."""

_WORD = re.compile(r"\w+")


def alike_memories(settings: Settings, database: Database, text: str) -> list[AlikeDocument]:
    """Current memories that say almost the same, the most alike first; the very same text is not among them. If some have
    the same words, only these."""
    words = normal_words(text)
    same = [
        AlikeDocument(id=each.id.hex(), text=each.text, by=Likeness.WORDS, score=1.0)
        for each in memories(database, limit=COMPARED_MAX)
        if each.text != text and normal_words(each.text) == words
    ]
    return same or _near(settings, text, words)


def normal_words(text: str) -> tuple[str, ...]:
    """A text's words, normalised."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _near(settings: Settings, text: str, words: tuple[str, ...]) -> list[AlikeDocument]:
    if len(words) < WORDS_MIN:
        return []
    request = SearchRequest(
        query=text[:QUERY_CHARS_MAX],
        limit=NEAREST_MAX,
        kind=ResultKind.MEMORY,
        depth=Depth.FAST,
        explain=True,
    )
    try:
        with memory_client(settings) as asking:
            hits = asking.search(request).results
    except CrystalError:
        return []  # a memory is kept whether or not what is like it can be found
    found: list[AlikeDocument] = []
    for hit in hits:
        if hit.text == text:
            continue
        others = normal_words(hit.text)
        if _numbers(others) != _numbers(words):
            continue
        similarity = float((hit.explain or {}).get("similarity") or 0.0)
        shared = len(set(words) & set(others)) / len(set(words) | set(others))
        if similarity >= SIMILARITY_MIN:
            found.append(
                AlikeDocument(id=hit.id, text=hit.text, by=Likeness.MEANING, score=round(similarity, 3))
            )
        elif shared >= OVERLAP_MIN:
            found.append(AlikeDocument(id=hit.id, text=hit.text, by=Likeness.WORDS, score=round(shared, 3)))
    return sorted(found, key=lambda each: -each.score)


def _numbers(words: tuple[str, ...]) -> set[str]:
    return {word for word in words if any(character.isdigit() for character in word)}

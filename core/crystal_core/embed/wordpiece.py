"""The tokenizer of the built-in model: uncased BERT's, from its published ``tokenizer.json``.

Control characters are removed, all white space becomes a space, Chinese characters and punctuation are words of their own,
accents are stripped, letters are lowercased one by one. From its start, a word is then cut into the longest pieces that the
vocabulary has (Wu and others 2016, section 4.1). The tests compare it with the library that the model was trained with,
character by character; that library, with its dependencies, takes 32 MB.
"""

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from crystal_crypto.errors import UNDECODABLE

_WORD_CHARACTERS_MAX: Final = 100
_CONTINUED: Final = "##"
_UNKNOWN: Final = "[UNK]"
_START: Final = "[CLS]"
_END: Final = "[SEP]"
_WORDS_KEPT: Final = 1 << 15
"""Words whose pieces are cached: about 8 MB."""
_REMOVED: Final = frozenset({"Cc", "Cf", "Co"})
_DESCRIBED: Final = (
    "WordPiece",
    _CONTINUED,
    _WORD_CHARACTERS_MAX,
    "BertNormalizer",
    True,
    "BertPreTokenizer",
)
"""What the file must state: its model, its normaliser and how it splits words."""
_CHINESE: Final = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class UnreadableTokenizer(Exception):
    """The file does not describe this kind of tokenizer. The message says what is wrong."""


class WordPiece:
    """Texts to token numbers. Thread-safe: what threads share is only added to or replaced."""

    def __init__(self, vocabulary: dict[str, int], special: dict[str, int]) -> None:
        """`special`: tokens that are kept whole wherever they stand in a text. Raises KeyError if one of the three that the
        model needs is missing."""
        self._vocabulary = vocabulary
        self._special = special
        self._unknown = vocabulary[_UNKNOWN]
        self.start, self.end = vocabulary[_START], vocabulary[_END]
        self._splitter = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        self._clean = _Table(_cleaned)
        self._fold = _Table(_folded)
        self._pieces: dict[str, tuple[int, ...]] = {}

    @classmethod
    def read(cls, path: Path) -> "WordPiece":
        """From a ``tokenizer.json``. Raises OSError, and UnreadableTokenizer."""
        try:
            document: dict[str, Any] = msgspec.json.decode(path.read_bytes())
            model, normalizer = document["model"], document["normalizer"]
            described: tuple[object, ...] = (
                *(model["type"], model["continuing_subword_prefix"], model["max_input_chars_per_word"]),
                *(normalizer["type"], normalizer["lowercase"], document["pre_tokenizer"]["type"]),
            )
            if described != _DESCRIBED:
                raise UnreadableTokenizer(f"it describes another tokenizer: {described}")
            special = {each["content"]: each["id"] for each in document["added_tokens"]}
            return cls(msgspec.convert(model["vocab"], dict[str, int]), special)
        except (*UNDECODABLE, KeyError, TypeError) as error:
            raise UnreadableTokenizer(f"it cannot be read: {error}") from error

    def encode(self, text: str) -> list[int]:
        """The text's tokens, without those for start and end. A lone surrogate counts as a question mark."""
        ids: list[int] = []
        for part in self._splitter.split(text):
            if part in self._special:
                ids.append(self._special[part])
                continue
            cleaned = unicodedata.normalize("NFD", part.translate(self._clean))
            for word in cleaned.translate(self._fold).split():
                ids += self._pieces.get(word) or self._cut(word)
        return ids

    def _cut(self, word: str) -> tuple[int, ...]:
        if len(word) > _WORD_CHARACTERS_MAX:
            return (self._unknown,)  # not remembered: 20,000 lines of hexadecimal digits would take 34 MB
        pieces = tuple(self._longest(word))
        if len(self._pieces) >= _WORDS_KEPT:
            self._pieces = {}
        self._pieces[word] = pieces
        return pieces

    def _longest(self, word: str) -> list[int]:
        pieces: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(len(word), start, -1):
                found = self._vocabulary.get(prefix + word[start:end])
                if found is not None:
                    break
            else:
                return [self._unknown]
            pieces.append(found)
            start, prefix = end, _CONTINUED
        return pieces


class _Table(dict[int, str]):
    """What each character becomes, for `str.translate`; filled as characters are met."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        made = self[code] = self._rule(chr(code))
        return made


def _cleaned(character: str) -> str:
    code = ord(character)
    if character in "\t\n\r":
        return " "
    if 0xD800 <= code <= 0xDFFF:
        return "?"
    if character in "\0\ufffd" or unicodedata.category(character) in _REMOVED:
        return ""
    if any(first <= code <= last for first, last in _CHINESE):
        return f" {character} "
    return character


def _folded(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Mn":
        return ""
    lowered = character.lower()
    return f" {lowered} " if category[0] == "P" or (character.isascii() and category[0] == "S") else lowered

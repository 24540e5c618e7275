"""The tokenizer gives the tokens that the library gives with which the model was trained."""

import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from crystal_core.embed.wordpiece import UnreadableTokenizer, WordPiece
from tests.core.embed.conftest import MODEL

FILE = MODEL / "tokenizer.json"
OURS = WordPiece.read(FILE)
THEIRS = Tokenizer.from_file(str(FILE))
THEIRS.no_truncation()
THEIRS.no_padding()
VOCABULARY: dict[str, int] = json.loads(FILE.read_text(encoding="utf-8"))["model"]["vocab"]
KNOWN = sorted({character for piece in VOCABULARY for character in piece} - {"#"})
CHARACTERS = st.sampled_from(
    [*KNOWN, *map(chr, range(0x250)), "\u0301", "\u2028", "\u3000", "\ufffd", "\u200b", "İ", "Σ", "Ǆ"]
)
WORDS = st.one_of(st.sampled_from(sorted(VOCABULARY)), st.text(CHARACTERS, max_size=130))


def expected(text: str) -> list[int]:
    ids: list[int] = THEIRS.encode(text, add_special_tokens=False).ids
    return ids


def test_start_and_end_are_the_librarys() -> None:
    assert THEIRS.encode("").ids == [OURS.start, OURS.end]


@settings(max_examples=400, deadline=None)
@given(st.lists(WORDS, max_size=12), st.sampled_from(["", " ", "\n", "\t ", "##", "[SEP]", "[cls]"]))
def test_any_text_gives_the_librarys_tokens(words: list[str], between: str) -> None:
    text = between.join(words)
    assert OURS.encode(text) == expected(text)


def test_every_page_of_this_project_gives_the_librarys_tokens() -> None:
    pages = sorted(Path(__file__).parents[3].glob("docs/**/*.md"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert OURS.encode(text) == expected(text), page


@pytest.mark.slow
def test_every_character_is_treated_as_the_library_does() -> None:
    """But for some of scripts that are younger than the library's tables, none of which the vocabulary has."""
    kinds = {code: unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)}
    # Of the hundred thousand ideographs and syllables, one in sixteen and one in seven.
    codes = [code for code, kind in kinds.items() if kind not in {"Cs", "Cn", "Co", "Lo"}]
    codes += [code for code, kind in kinds.items() if kind == "Lo" and (code % 16 == 0 or code % 7 == 0)]
    theirs = THEIRS.encode_batch([f"go{chr(code)}ne" for code in codes], add_special_tokens=False)
    other = {
        chr(code)
        for code, found in zip(codes, theirs, strict=True)
        if OURS.encode(f"go{chr(code)}ne") != found.ids
    }
    assert not other & set(KNOWN)
    assert len(other) < 700
    assert {unicodedata.category(each) for each in other} <= {"Mn", "Po", "Ps", "Pe", "Pd", "Cf", "So", "Mc"}


def test_half_a_surrogate_pair_is_a_question_mark() -> None:
    assert OURS.encode("what\ud800") == OURS.encode("what?") == expected("what?")


def test_more_words_than_are_kept_give_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal_core.embed.wordpiece._WORDS_KEPT", 3)
    text = "to be or not to be that is the question whether tis nobler"
    assert WordPiece.read(FILE).encode(text) == expected(text)


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda document: document["model"].update(type="BPE"),
    lambda document: document["normalizer"].update(lowercase=False),
    lambda document: document["model"]["vocab"].pop("[UNK]"),
    lambda document: document["model"]["vocab"].update(word="many"),
    lambda document: document.pop("added_tokens"),
    lambda document: document.update(pre_tokenizer=None),
]


@pytest.mark.parametrize("change", CHANGES)
def test_another_tokenizers_file_is_refused(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    document = json.loads(FILE.read_text(encoding="utf-8"))
    change(document)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UnreadableTokenizer):
        WordPiece.read(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff\xfe"])
def test_a_damaged_file_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(UnreadableTokenizer):
        WordPiece.read(tmp_path / "tokenizer.json")


def test_words_that_are_too_long_to_be_cut_are_not_kept() -> None:
    tokenizer = WordPiece.read(FILE)
    text = f"{'a' * 100} {'b' * 101} {'c' * 1600}"
    assert tokenizer.encode(text) == expected(text)
    assert set(tokenizer._pieces) == {"a" * 100}  # pyright: ignore[reportPrivateUsage]  what is kept shows nowhere else

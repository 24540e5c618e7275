"""What holds of passages, whatever the document: nothing is lost, nothing is too long, an edit stays near where it was made."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_core.cutting import SOLID_CHARS, PassageKind, cut
from crystal_mirror.operations import PIECE_BYTES_MAX

LINES = (
    "# Heading",
    "## Heading two ##",
    "Title",
    "=====",
    "---",
    "```python",
    "```",
    "~~~",
    "| a | b |",
    "|---|---|",
    "- item",
    "  going on",
    "1. first",
    "",
    "",
    "A sentence. Another one! And a third?",
    "def f(x):",
    "    return x",
    "class A:",
    "    def method(self):",
    "        pass",
    "function go() {",
    "}",
    "\tif (a) {",
    "\t}",
    "@decorator",
    "# comment",
    '"""',
    "これは文です。それも文です。",
    "x" * 700,
    "word " * 120,
    "\f",
    "    ",
    "\r",
    "\x85 \u2028",
)


def repeated(text: str, times: int) -> str:
    return text * times


documents = st.one_of(
    st.lists(st.sampled_from(LINES), max_size=120).map("\n".join),
    st.text(max_size=4000),
    st.builds(repeated, st.text(max_size=60), st.integers(1, 400)),
)


def solid(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("kind", PassageKind)
@given(text=documents)
def test_passages_hold_all_that_is_no_white_space_once_and_in_order(
    text: str, kind: PassageKind, python: bool
) -> None:
    passages = cut(text, kind, python=python)
    assert solid("".join(passage.text for passage in passages)) == solid(text)
    for passage in passages:
        assert passage.text.strip()
        assert len(passage.text) <= SOLID_CHARS
        assert len(passage.text.encode("utf-8", "surrogatepass")) <= PIECE_BYTES_MAX
        assert len(passage.title) <= 300


def written(kind: PassageKind, seed: int, sections: int = 90) -> list[str]:
    """Paragraphs, or functions, of many sizes."""
    dice = random.Random(seed)
    parts: list[str] = []
    for number in range(sections):
        words = [
            dice.choice(("alpha", "bravo", "charlie", "delta")) + str(dice.randrange(1000)) for _ in range(90)
        ]
        prose = " ".join(words[: dice.randrange(10, 90)])
        match kind:
            case PassageKind.CODE:
                lines = "\n".join(f"    {word} = {number}" for word in words[: dice.randrange(2, 60)])
                parts.append(f"def function_{number}():\n{lines}\n")
            case PassageKind.MARKDOWN:
                parts.append(f"## Section {number}\n\n{prose}." if number % 3 == 0 else f"{prose}.")
            case _:
                parts.append(f"{prose}.")
    return parts


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PassageKind.CODE, PassageKind.MARKDOWN, PassageKind.TEXT])
def test_one_edit_changes_the_passages_around_it_and_no_others(kind: PassageKind) -> None:
    changed: list[int] = []
    for seed in range(20):
        parts = written(kind, seed)
        before = {passage.text for passage in cut("\n\n".join(parts), kind, python=True)}
        parts[10] = parts[10].replace("alpha", "a word that was not here before alpha")
        after = {passage.text for passage in cut("\n\n".join(parts), kind, python=True)}
        assert len(before) > 25
        changed.append(len(after - before))
    assert sum(changed) / len(changed) <= 5, changed
    assert max(changed) <= 15, changed


@pytest.mark.parametrize("kind", PassageKind)
def test_the_same_text_is_cut_the_same_whatever_its_line_breaks(kind: PassageKind) -> None:
    text = "\n\n".join(written(kind, 3))
    assert cut(text, kind) == cut(text.replace("\n", "\r\n"), kind)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["(", "[" * 50 + "\n", "{\n", "#\n", "```\n", "- " * 40 + "\n", "\n", "a(", "\t\n", "|"]
)
def test_a_hostile_document_is_cut_in_a_bounded_time(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    for kind in (PassageKind.MARKDOWN, PassageKind.CODE):
        passages = cut(text, kind, python=True)
        assert solid("".join(passage.text for passage in passages)) == solid(text)

"""What is between quotation marks is in the source, or is not between quotation marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal_core.weaver.quotations import TAKEN_OUT, Quotable, honest, unquoted

SOURCE = (
    'We never delete backups, ever.\nThe port is 8443. He said: "it isn\'t mine", and left.  Ünïcode — too.'
)
QUOTABLE = Quotable([SOURCE, "Another message, about teak."])


@pytest.mark.parametrize(
    "quoted",
    [
        "“We never delete backups, ever.”",
        '"The port is 8443."',
        '"The port is 8443,"',
        "„about teak“",
        "«Another message»",
        "「The port is 8443」",
        "'We never delete backups'",
        "“ever. The port is”",
    ],
)
def test_words_of_the_source_stand_as_a_quotation(quoted: str) -> None:
    text, cut = honest(f"He wrote {quoted} yesterday.", QUOTABLE)
    assert cut == 0
    assert "“" in text
    assert TAKEN_OUT not in text


@pytest.mark.parametrize(
    "invented",
    [
        "“We always delete backups, ever.”",
        '"the Port is 8443"',
        "„we sell the house now“",
        "«we sell the house now»",
        "»we sell the house now«",
        "「we sell the house now」",
        "'we sell the house, don't we'",
        "‘we sell the house now’",
        "“We never delete … ever.”",
        "“We never delete backups, ever. The port is 8443. Another message”",
        '"broken over\na line it was"',
        "> We sell the house now.",
        "> “We sell\n> the house now.”",
    ],
)
def test_an_invented_quotation_is_taken_out_and_counted(invented: str) -> None:
    text, cut = honest(f"Before.\n\n{invented}\n\nBehind.", QUOTABLE)
    assert cut == 1
    assert TAKEN_OUT in text
    assert "Before." in text
    assert "Behind." in text
    for mark in "“„«»「\"'‘>":
        assert mark not in text


def test_parts_of_words_are_no_quotation_and_languages_without_spaces_can_be_quoted() -> None:
    assert honest('He "ever deletes bac" things.', Quotable(["Whoever deletes backups"]))[1] == 1
    assert honest("„我们从不删除“", Quotable(["昨天我们从不删除备份。"])) == ("“我们从不删除”", 0)


def test_a_page_quotes_nobody() -> None:
    text = unquoted("They said “the port is 8443”.\n\n> We never delete backups, ever.\n\nSo be it.")
    assert "8443" not in text
    assert "backups" not in text
    assert text.endswith("So be it.")


def test_a_term_loses_its_marks_and_stays() -> None:
    assert honest('They call it "the loom" here.', QUOTABLE) == ("They call it the loom here.", 1)


def test_a_mark_without_its_partner_pairs_with_none_behind_it() -> None:
    text, _ = honest('A stray " mark.\n\nThen "The port is 8443" holds.', QUOTABLE)
    assert text == "A stray  mark.\n\nThen “The port is 8443” holds."


def test_an_apostrophe_is_no_quotation_mark() -> None:
    text = "The users' data isn't the devs' own, it's theirs."
    assert honest(text, QUOTABLE) == (text, 0)


def test_a_true_quotation_that_is_set_off_stays() -> None:
    assert honest("> The port is 8443.", QUOTABLE) == ("> The port is 8443.", 0)


@given(st.text(alphabet="ab \n\"'“”„«»‘’>「」.", max_size=60))
def test_whatever_stands_in_a_text_no_mark_is_left_around_words_that_nobody_said(text: str) -> None:
    found, _ = honest(text, Quotable(["xyz"]))
    rest = found.replace(TAKEN_OUT, "")
    assert not any(mark in rest for mark in '“”„«»「」"')

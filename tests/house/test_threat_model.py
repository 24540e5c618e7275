"""Each row of docs/threat-model.md names tests that show it, or says why nothing can; each section of attackers has rows.

That the named tests exist is checked in ``test_pages``.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
_HEAD = ["can do", "learns", "what stops it", "shown by"]
_TEST = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")
_UNTESTED = re.compile(r"^not tested: \S.{30,}\.$")
_BETWEEN = re.compile(r"^(?:<br>)?$")


@dataclass(frozen=True, slots=True)
class Row:
    """One attack, with the cell that says which tests show it."""

    section: str
    attack: str
    shown_by: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Name and file of each test."""
        return _TEST.findall(self.shown_by)


def read(text: str) -> tuple[list[Row], list[str]]:
    """The rows of the attackers' tables, and what is wrong with the page's form."""
    attackers = text.split("\n## Attackers\n", 1)[1].split("\n## ", 1)[0]
    rows: list[Row] = []
    faults: list[str] = []
    for part in attackers.split("\n### ")[1:]:
        section, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        if not cells or cells[0] != _HEAD or any(set(cell) != {"-"} for cell in cells[1]):
            faults.append(f"{section}: no table of {_HEAD}")
            continue
        for row in cells[2:]:
            if len(row) == len(_HEAD):
                rows.append(Row(section, row[0], row[3]))
            else:
                faults.append(f"{section}: {len(row)} cells in the row {row[0]!r}")
    return rows, faults


def unshown(rows: list[Row]) -> list[str]:
    """The rows that name no test and do not say why, or say something beside the tests' names."""
    return [
        f"{row.section}: {row.attack}"
        for row in rows
        if not (
            _UNTESTED.match(row.shown_by)
            or (row.tests and all(_BETWEEN.match(each) for each in _TEST.split(row.shown_by)[::3]))
        )
    ]


def page() -> str:
    return (PROJECT / "docs" / "threat-model.md").read_text(encoding="utf-8")


def test_every_row_names_its_tests_or_says_why_there_is_none() -> None:
    rows, faults = read(page())
    assert faults == []
    assert len(rows) > 100
    assert unshown(rows) == []
    assert [
        each for each, count in Counter((row.section, row.attack) for row in rows).items() if count > 1
    ] == []


def test_no_row_names_a_test_twice() -> None:
    rows, _ = read(page())
    assert [row.attack for row in rows if len(set(row.tests)) < len(row.tests)] == []


_ROWS = """
## Attackers

### Somebody

| can do | learns | what stops it | shown by |
|---|---|---|---|
| read | nothing | keys | [`test_a`](../tests/a.py)<br>[`test_b`](../tests/b.py) |
| steal the machine | all | nothing | not tested: a test cannot take a machine away from its owner. |

## Else
"""


def test_rows_with_tests_or_a_reason_pass() -> None:
    rows, faults = read(_ROWS)
    assert (len(rows), faults, unshown(rows)) == (2, [], [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[`test_a`](../tests/a.py)<br>[`test_b`](../tests/b.py)", ""),
        ("[`test_a`](../tests/a.py)<br>[`test_b`](../tests/b.py)", "the tests of the relay"),
        ("<br>[`test_b`](../tests/b.py)", " and others"),
        ("not tested: a test cannot take a machine away from its owner.", "not tested: no."),
        ("| all | nothing |", "| all |"),
        ("| shown by |", "| tests |"),
    ],
)
def test_a_row_that_nothing_shows_is_found(before: str, after: str) -> None:
    assert before in _ROWS
    rows, faults = read(_ROWS.replace(before, after))
    assert unshown(rows) + faults != []

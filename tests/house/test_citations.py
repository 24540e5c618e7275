"""Each rule of docs/protocol.md and docs/relay-api.md is cited beside its check, and each citation leads to a rule.

A rule is ``**§9.3-5**`` on the page, a section ``### 9.3. Title``. The code cites ``§9.3-5``, or ``§9.3`` for a section that
has no rules of its own, in a comment or a docstring; a module's docstring does not count, since it is not beside the check.
A section whose first line is ``<!-- explanation -->`` needs no citation.
"""

import ast
import functools
import io
import re
import tokenize
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGES = ("docs/protocol.md", "docs/relay-api.md")
FOLDERS = ("crypto", "mirror", "core", "relay", "node")

_NUMBER = r"R?\d+(?:\.\d+)*"
_HEADING = re.compile(rf"^#{{2,6}} (?:({_NUMBER})\. )?(.*)$")
_RULE = re.compile(rf"\*\*§({_NUMBER}-\d+)\*\*")
_CITATION = re.compile(rf"§(?:({_NUMBER}(?:-\d+)?)(?![\w.-]*\w))?")
_FENCE = "```"
_EXPLANATION = "<!-- explanation -->"


@dataclass
class Page:
    """What a page defines: numbered sections, their rules, and which sections only explain."""

    sections: list[str] = field(default_factory=list[str])
    rules: list[str] = field(default_factory=list[str])
    explanations: set[str] = field(default_factory=set[str])
    faults: list[str] = field(default_factory=list[str])

    def defined(self) -> set[str]:
        return {*self.sections, *self.rules}

    def to_be_cited(self) -> set[str]:
        """Every rule, and every section that has neither rules nor sections below it and does more than explain."""
        parents = {rule.rpartition("-")[0] for rule in self.rules}
        parents |= {section.rpartition(".")[0] for section in self.sections}
        return {*self.rules, *(set(self.sections) - parents - self.explanations)}


def read_page(text: str) -> Page:
    page = Page()
    section, first, fenced = "", False, False
    for line in text.splitlines():
        if line.startswith(_FENCE):
            fenced = not fenced
        if fenced or not line.strip():
            continue
        heading = _HEADING.match(line)
        if heading is not None:
            if heading[1] is None:
                page.faults.append(f"a section without a number: {heading[2]}")
                continue
            section, first = heading[1], True
            page.sections.append(section)
            continue
        if first and line.strip() == _EXPLANATION:
            page.explanations.add(section)
        first = False
        for rule in _RULE.findall(line):
            if rule.rpartition("-")[0] != section:
                page.faults.append(f"§{rule} stands in section {section}")
            if section in page.explanations:
                page.faults.append(f"§{rule} is a rule in a section that only explains")
            page.rules.append(rule)
    page.faults += [
        f"{later} comes after {earlier}"
        for earlier, later in (*pairwise(page.sections), *pairwise(page.rules))
        if _order(later) <= _order(earlier)
    ]
    return page


def _order(name: str) -> tuple[list[int], int]:
    """Of a section or rule: a section's rules stand before the sections below it."""
    section, _, rule = name.partition("-")
    return [int(number) for number in section.lstrip("R").split(".")], int(rule or 0)


def citations(source: str) -> list[str]:
    """What a module cites outside its own docstring, in order; "" for a ``§`` without a number."""
    if "§" not in source:
        return []
    tree = ast.parse(source)
    own = ast.get_docstring(tree, clean=False)
    texts = [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and not (own is not None and node is tree.body[0])
    ]
    texts += [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    return [found for text in texts for found in _CITATION.findall(text)]


@functools.cache
def project_pages() -> dict[str, Page]:
    return {name: read_page((PROJECT / name).read_text(encoding="utf-8")) for name in PAGES}


@functools.cache
def project_citations() -> dict[str, list[str]]:
    return {
        str(path.relative_to(PROJECT)): found
        for folder in FOLDERS
        for path in sorted((PROJECT / folder).glob("crystal_*/**/*.py"))
        if (found := citations(path.read_text(encoding="utf-8")))
    }


def uncited(pages: list[Page], cited: dict[str, list[str]]) -> list[str]:
    found = {each for names in cited.values() for each in names}
    return [f"§{name}" for page in pages for name in sorted(page.to_be_cited() - found, key=_order)]


def dangling(pages: list[Page], cited: dict[str, list[str]]) -> list[str]:
    defined = {name for page in pages for name in page.defined()}
    return [f"{module}: §{name}" for module, names in cited.items() for name in names if name not in defined]


def test_the_pages_number_their_sections_and_rules_in_order() -> None:
    pages = project_pages()
    assert {name: page.faults for name, page in pages.items()} == {name: [] for name in PAGES}
    assert len(pages["docs/protocol.md"].rules) > 250
    assert len(pages["docs/relay-api.md"].rules) > 80


def test_every_rule_is_cited_beside_its_check() -> None:
    assert uncited(list(project_pages().values()), project_citations()) == []


def test_every_citation_leads_to_a_rule() -> None:
    cited = project_citations()
    assert sum(len(names) for names in cited.values()) > 600
    assert dangling(list(project_pages().values()), cited) == []


def test_a_page_that_names_a_rule_names_one_that_exists() -> None:
    defined = {name for page in project_pages().values() for name in page.defined()}
    named = [
        (name, found)
        for name in PAGES
        for found in _CITATION.findall((PROJECT / name).read_text(encoding="utf-8"))
        if found
    ]
    assert [each for each in named if each[1] not in defined] == []


PAGE = """
## 1. About
<!-- explanation -->

Words.

## 2. Reading

- **§2-1** Short: refused.
- **§2-2** Long: refused.

### 2.1. Layout

| offset | field |

```
## 9. In a drawing: **§9-1**
```
"""
CODE = '''"""Reads."""


def read(data):
    """Reads it (docs/protocol.md §2.1)."""
    if len(data) < 2:  # §2-1
        raise ValueError
    # §2-2: checked before it is copied
    if len(data) > 9:
        raise ValueError
'''


def verdict(page: str, code: str) -> tuple[list[str], list[str]]:
    pages, cited = [read_page(page)], {"a.py": citations(code)}
    return uncited(pages, cited), dangling(pages, cited)


def test_rules_that_are_cited_in_comments_and_docstrings_pass() -> None:
    assert read_page(PAGE).faults == []
    assert verdict(PAGE, CODE) == ([], [])


@pytest.mark.parametrize(
    ("cited", "missing"),
    [("  # §2-1", "§2-1"), ("§2-2: ", "§2-2"), (" (docs/protocol.md §2.1)", "§2.1")],
)
def test_a_rule_that_no_code_cites_is_found(cited: str, missing: str) -> None:
    assert cited in CODE
    assert verdict(PAGE, CODE.replace(cited, "")) == ([missing], [])


def test_a_citation_in_the_modules_docstring_is_not_beside_the_check() -> None:
    code = CODE.replace("  # §2-1", "").replace('"""Reads."""', '"""Reads (§2-1)."""')
    assert verdict(PAGE, code) == (["§2-1"], [])


@pytest.mark.parametrize("cited", ["§2-3", "§3", "§2.1.1", "§R2-1", "§2-1a", "§ 2-1", "§two"])
def test_a_citation_that_leads_nowhere_is_found(cited: str) -> None:
    missing, dangling_ones = verdict(PAGE, f"{CODE}    return data  # {cited}\n")
    assert missing == []
    assert len(dangling_ones) == 1


def test_a_rule_that_was_taken_off_the_page_leaves_its_citation_dangling() -> None:
    assert verdict(PAGE.replace("- **§2-2** Long: refused.\n", ""), CODE) == ([], ["a.py: §2-2"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("## 2. Reading", "## Reading"),
        ("### 2.1. Layout", "### 1.1. Layout"),
        ("**§2-2**", "**§2-1**"),
        ("**§2-2**", "**§3-2**"),
        ("Words.", "**§1-1** Words."),
    ],
)
def test_a_number_that_is_missing_twice_or_out_of_order_is_found(before: str, after: str) -> None:
    assert before in PAGE
    assert read_page(PAGE.replace(before, after)).faults != []

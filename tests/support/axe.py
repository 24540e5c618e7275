"""axe-core, which finds what keeps people out of a page. It comes with a package for Playwright and runs in the page itself."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Page

PACKAGE = "axe_playwright_python"
_RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.map(
    (each) => [each.id, each.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)}: ${node.failureSummary}`)])"""


def axe_source() -> str:
    """The program. Skips the test where the package is not installed."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        pytest.skip("axe-core is not installed here: pip install axe-playwright-python")
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def findings(page: Page, source: str) -> list[object]:
    """What axe has to say against the page as it is, by all of its rules: WCAG A and AA, and good practice."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(f"{source}; null")
    found: list[object] = page.evaluate(_RUN)
    return found

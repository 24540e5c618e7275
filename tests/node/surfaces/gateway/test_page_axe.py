"""axe on every view of the page, on a phone and a wide screen, light and dark: no finding."""

import json
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.axe import axe_source, findings
from tests.support.chromium import tab
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Vault, turn
from tests.support.relay_process import RelayProcess

pytestmark = pytest.mark.timeout(400)

ANSWER = """# Retries

The **budget** is *eleven*, ~~twelve~~ attempts. See [the notes](https://example.org/notes).

| attempt | pause |
|--:|--:|
| 1 | 2 s |

- one
  1. two

> quoted

```python
pause = 2
```

![a curve](https://example.org/curve.png)
"""
ROWS = 12
VIEWS = ("home", "search", "conversation", "projects", "memories", "devices", "jobs", "page")


@pytest.fixture(scope="module")
def gateway(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateway]:
    machine = Vault(relay, tmp_path_factory.mktemp("axe")).core
    folder = machine.projects / "-home-someone-work"
    folder.mkdir(parents=True)
    for number in range(ROWS):
        name = f"session-{number}"
        lines = [
            turn(
                f"How many attempts has importer {number}?",
                session=name,
                moment=f"2026-01-{number + 5:02}T09:00:00.000Z",
            )
        ]
        for place, block in enumerate(
            (
                {"type": "thinking", "thinking": "It stands in its settings.", "signature": "x"},
                {"type": "text", "text": ANSWER},
            )
        ):
            record = json.loads(
                turn(
                    "",
                    session=name,
                    role="assistant",
                    moment=f"2026-01-{number + 5:02}T09:00:0{place + 1}.000Z",
                )
            )
            record["message"] = {"role": "assistant", "content": [block]}
            record["cwd"] = str(machine.root / f"project-{number % 3}")
            lines.append(json.dumps(record) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    machine.call("capture")
    machine.call("remember", "The lamp of the importer is green.")
    machine.call("sync")
    with running_gateway(machine) as running:
        yield running


def _visit(page: Page, view: str) -> None:
    """Brings the view to the screen, with everything in it opened."""
    if view == "home":
        page.locator(".brand").click()
        expect(page.locator(".entry").first).to_be_visible()
        if page.locator(".rail > summary").is_visible():
            page.locator(".rail > summary").click()
        expect(page.locator(".calendar .day").first).to_be_visible()
        page.locator(".choice-list button[data-value='project-1']").click()
        expect(page.locator(".chips .chip.on")).to_contain_text("project-1")
    elif view == "search":
        page.locator("#query").fill("attempts of the importer")
        page.keyboard.press("Enter")
        expect(page.locator(".hit").first).to_be_visible()
        page.locator(".filters summary").click()
        expect(page.locator(".filters .choice").first).to_be_visible()
        page.locator(".hit").first.click()
        expect(page.locator(".reader .asked")).to_be_visible()
    elif view == "conversation":
        page.get_by_role("link", name="Whole conversation").click()
        expect(page.locator(".message .code")).to_be_visible()
        page.locator(".message .folded summary").click()
        expect(page.locator(".message .folded .text")).to_be_visible()
    elif view in ("devices", "jobs", "page"):
        page.locator("#nav [data-view=settings]").click()
        page.locator(f"#subnav [data-view={view}]").click()
        expect(page.locator(f"#view-{view} h1")).to_be_visible()
        if view == "devices":
            expect(page.locator("svg.flow")).to_be_visible()
    else:
        page.locator(f"#nav [data-view={view}]").click()
        expect(page.locator(f"#view-{view} .card").first).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_axe_finds_nothing_on_any_view(browser: Browser, gateway: Gateway, width: int, dark: bool) -> None:
    source = axe_source()
    with tab(browser, width=width, height=800, dark=dark) as opened:
        page = opened.page
        page.goto(gateway.link())
        for view in VIEWS:
            _visit(page, view)
            assert findings(page, source) == [], view
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide == width, f"{view} is {wide} pixels wide"
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert findings(page, source) == [], "keys"
        assert opened.faults == []


def test_axe_finds_nothing_on_a_page_that_is_not_open(browser: Browser, gateway: Gateway) -> None:
    source = axe_source()
    with tab(browser) as opened:
        opened.page.goto(gateway.url)
        expect(opened.page.locator("#view-locked")).to_be_visible()
        assert findings(opened.page, source) == []


def test_axe_finds_what_is_wrong(browser: Browser, gateway: Gateway) -> None:
    """So that no finding means something."""
    source = axe_source()
    with tab(browser) as opened:
        opened.page.goto(gateway.url)
        expect(opened.page.locator("#view-locked")).to_be_visible()
        opened.page.evaluate("() => document.querySelector('main').append(document.createElement('button'))")
        assert findings(opened.page, source)

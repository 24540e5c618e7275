"""The first screen: conversations by time, a calendar, filters with counts; addresses that reload and the back button keep."""

import json
import re
from collections.abc import Generator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import Tab, page_of, tab
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, Vault, turn
from tests.support.relay_process import RelayProcess

pytestmark = pytest.mark.timeout(400)

CONVERSATIONS = 340
IN_THE_DOCUMENT_MAX = 60
BEGAN = datetime(2026, 3, 20, 12, tzinfo=UTC)


def _moment(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _write(machine: Machine, number: int) -> None:
    at = BEGAN - timedelta(hours=5 * number)
    name = f"{number:08}-0b5e-4d0e-9a52-0f3f9f0f0a00"
    said = (
        ("user", f"What is the reading of gauge {number}?"),
        ("thinking", "It hangs."),
        ("assistant", "Nine."),
    )
    lines: list[str] = []
    for place, (role, text) in enumerate(said):
        block = (
            {"type": "thinking", "thinking": text, "signature": "x"}
            if role == "thinking"
            else {"type": "text", "text": text}
        )
        speaker = "user" if role == "user" else "assistant"
        record = json.loads(
            turn("", session=name, role=speaker, moment=_moment(at + timedelta(minutes=place)))
        )
        record |= {
            "cwd": str(machine.root / f"project-{number % 4}"),
            "message": {"role": speaker, "content": [block]},
        }
        lines.append(json.dumps(record) + "\n")
    folder = machine.projects / "-home-someone-work"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def gateway(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateway]:
    machine = Vault(relay, tmp_path_factory.mktemp("home")).core
    for number in range(CONVERSATIONS):
        _write(machine, number)
    machine.call("capture")
    machine.call("remember", "The lamp of the importer is green.")
    machine.call("sync")
    with running_gateway(machine) as running:
        yield running


@pytest.fixture
def shown(browser: Browser, gateway: Gateway) -> Generator[Tab]:
    with page_of(browser, gateway, width=1440, height=900) as opened:
        expect(opened.page.locator(".entry").first).to_be_visible()
        expect(opened.page.locator(".choice").first).to_be_visible()
        yield opened


def test_the_first_screen_has_what_was_talked_about_lately(shown: Tab) -> None:
    page = shown.page
    first = page.locator(".entry").first
    expect(first.locator(".title")).to_have_text("What is the reading of gauge 0?")
    for said in ("project-0", "claude-code"):
        expect(first.locator(".meta")).to_contain_text(said)
    assert "2026" in (first.locator("time").get_attribute("title") or ""), "the exact date on hover"
    expect(page.locator("#view-home .said")).to_have_text(f"{CONVERSATIONS} conversations")
    expect(page.locator(".calendar h2")).to_have_text("March 2026")
    expect(page.locator(".choice[data-value=project-1] .count")).to_have_text("85")
    expect(page.locator(".remembered")).to_contain_text("The lamp of the importer is green.")
    expect(page.locator(".problems")).to_contain_text("recovery kit")


def test_filters_and_days_narrow_and_have_addresses(shown: Tab) -> None:
    page = shown.page
    page.locator(".choice[data-value=project-1]").click()
    expect(page.locator("#view-home .said")).to_contain_text("85 conversations")
    assert "project-1" not in page.url
    page.get_by_role("button", name="18 March 2026").click()
    expect(page.locator(".chips .chip")).to_have_count(2)
    expect(page.locator(".entry")).to_have_count(1)
    page.reload()
    expect(page.locator(".entry")).to_have_count(1)
    page.go_back()
    expect(page.locator("#view-home .said")).to_contain_text("85 conversations")
    page.go_back()
    expect(page.locator("#view-home .said")).to_have_text(f"{CONVERSATIONS} conversations")
    page.go_forward()
    expect(page.locator(".choice[data-value=project-1]")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")  # leaves the field
    page.keyboard.press("Escape")
    expect(page.locator("#view-home .said")).to_have_text(f"{CONVERSATIONS} conversations")


def test_a_search_has_an_address_that_reload_and_the_back_button_keep(shown: Tab) -> None:
    page = shown.page
    page.locator("#query").fill("reading of gauge 7")
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_be_visible()
    assert "gauge" not in page.url, "what was searched for stands in no address"
    assert not any("gauge" in url for url in shown.requests)
    page.locator(".filters summary").click()
    page.locator(".filters .choice[data-value=project-3]").click()
    expect(page.locator("#view-search .chips [data-filter=project]")).to_be_visible()
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")
    page.locator(".hit").first.click()
    expect(page.locator(".reader .asked")).to_be_visible()
    page.reload()
    expect(page.locator(".reader .asked")).to_be_visible()
    expect(page.locator("#query")).to_have_value("reading of gauge 7")
    page.go_back()
    expect(page.locator(".reader")).to_be_hidden()
    expect(page.locator("#view-search .chips [data-filter=project]")).to_be_visible()
    page.go_back()
    expect(page.locator("#view-search .chips [data-filter=project]")).to_have_count(0)
    page.go_back()
    expect(page.locator("#view-home")).to_be_visible()
    expect(page.locator("#query")).to_have_value("")


def test_an_address_of_another_tab_tells_nothing_and_says_so(
    browser: Browser, gateway: Gateway, shown: Tab
) -> None:
    shown.page.locator("#query").fill("reading of gauge 7")
    shown.page.keyboard.press("Enter")
    expect(shown.page.locator(".hit").first).to_be_visible()
    address = shown.page.url.partition("#")[2]
    with tab(browser) as other:
        other.page.goto(gateway.link())
        expect(other.page.locator(".entry").first).to_be_visible()
        other.page.evaluate("(address) => { location.hash = address }", address)
        expect(other.page.locator("#view-search .empty")).to_contain_text("another tab")


def test_a_long_list_is_scrolled_through_with_few_rows_in_the_document(shown: Tab) -> None:
    page = shown.page
    height = page.locator(".timeline").evaluate("node => node.clientHeight")
    assert height == CONVERSATIONS * 68
    for part in (0.5, 1.0):
        page.evaluate("(part) => scrollTo(0, document.documentElement.scrollHeight * part)", part)
        expect(page.locator(".timeline .waits")).to_have_count(0)
        assert page.locator(".timeline > li").count() < IN_THE_DOCUMENT_MAX
    last = page.locator(".entry", has_text=f"gauge {CONVERSATIONS - 1}?")
    expect(last).to_be_in_viewport()
    expect(page.locator(".timeline > li").last).to_have_attribute("aria-posinset", str(CONVERSATIONS))
    last.click()
    expect(page.locator("#view-conversation h1")).to_contain_text(f"gauge {CONVERSATIONS - 1}?")
    page.go_back()
    expect(last).to_be_in_viewport()


def test_a_conversation_shows_the_command_that_resumes_it(shown: Tab) -> None:
    page = shown.page
    page.locator(".entry").first.click()
    expect(page.locator("#view-conversation h1")).to_be_visible()
    expect(page.locator("#view-conversation .slim code")).to_be_hidden()
    page.get_by_role("button", name="Resume…").click()
    expect(page.locator("#view-conversation .slim code")).to_have_text(
        re.compile("crystal resume [0-9a-f]{12}")
    )


def test_the_keyboard_goes_through_the_list_and_into_a_conversation_and_back(shown: Tab) -> None:
    page = shown.page
    keys = page.keyboard
    keys.press("ArrowDown")
    expect(page.locator(".entry").first).to_be_focused()
    for _ in range(20):
        keys.press("j")
    at = page.locator(".entry", has_text="gauge 20?")
    expect(at).to_be_focused()
    expect(at).to_be_in_viewport()
    keys.press("Enter")
    expect(page.locator("#view-conversation h1")).to_contain_text("gauge 20?")
    expect(page.locator(".message.aside .text")).to_be_hidden()
    page.locator(".message.aside summary").click()
    expect(page.locator(".message.aside .text")).to_have_text("It hangs.")
    keys.press("Escape")
    expect(page.locator(".message.aside .text")).to_be_hidden()
    keys.press("Escape")
    expect(page.locator("#view-home")).to_be_visible()


def test_what_is_said_meanwhile_comes_by_itself(shown: Tab, gateway: Gateway) -> None:
    page = shown.page
    machine = gateway.machine
    (machine.projects / "-home-someone-work" / "new.jsonl").write_text(
        turn("Is the new gauge there yet?", session="new", moment="2026-03-21T12:00:00.000Z"),
        encoding="utf-8",
    )
    machine.run("capture")
    page.get_by_role("link", name="Memories", exact=True).click()
    page.get_by_role("link", name="Home", exact=True).click()
    expect(page.locator(".entry").first.locator(".title")).to_have_text("Is the new gauge there yet?")
    found = gateway.get("/api/conversations?limit=1")["conversations"][0]
    gateway.post(
        "/api/forget", {"ids": [gateway.get(f"/api/conversations/{found['id']}")["messages"][0]["id"]]}
    )
    page.get_by_role("link", name="Memories", exact=True).click()
    page.get_by_role("link", name="Home", exact=True).click()
    expect(page.locator(".entry").first.locator(".title")).to_have_text("What is the reading of gauge 0?")

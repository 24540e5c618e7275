"""Turns in the page: questions with their answers by conversation, and the switches for messages and thinking."""

import json
from collections.abc import Generator

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium import Tab
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, Vault, turn
from tests.support.relay_process import RelayProcess
from tests.support.watchers import until

QUESTION = "How often may the importer try again before somebody is told? <b>Briefly</b>, please: I have to write it down."
ANSWER = "The retry budget of the importer is eleven attempts in an hour."
THOUGHT = "The retry budget stands in the importer's settings, next to the pause."
CONVERSATIONS = {
    "first": (
        ("user", QUESTION),
        ("thinking", THOUGHT),
        ("assistant", "Let me look at the importer."),
        ("assistant", ANSWER),
        ("user", "And the pause in between of the importer?"),
        ("assistant", "The importer pauses for five minutes after each attempt of its retry budget."),
    ),
    "second": (
        ("user", "Who services the harbour crane?"),
        ("assistant", "Ingrid services the harbour crane every second Tuesday."),
    ),
    "third": (("user", "What is the retry budget of the importer?"),),
}


def lines(session: str) -> Generator[str]:
    for number, (role, text) in enumerate(CONVERSATIONS[session]):
        content: object = text
        if role == "thinking":
            content = [{"type": "thinking", "thinking": text, "signature": "x"}]
        elif role == "assistant":
            content = [{"type": "text", "text": text}]
        speaker = "user" if role == "user" else "assistant"
        moment = f"2026-01-05T09:00:{number:02}.000Z"
        yield turn(
            "", session=session, role=speaker, moment=moment, message={"role": speaker, "content": content}
        )


@pytest.fixture(scope="module")
def gateway(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateway]:
    machine: Machine = Vault(relay, tmp_path_factory.mktemp("turns")).core
    folder = machine.projects / "-home-someone-work"
    folder.mkdir(parents=True)
    for session in CONVERSATIONS:
        (folder / f"{session}.jsonl").write_text("".join(lines(session)), encoding="utf-8")
    machine.call("capture")
    machine.call("sync")
    with running_gateway(machine) as running:
        yield running


def search(page: Page, query: str) -> None:
    page.locator("#query").fill(query)
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")


def test_a_hit_is_a_question_in_a_line_and_its_answer_under_its_conversation(shown: Tab) -> None:
    page = shown.page
    search(page, "retry budget of the importer")
    first = page.locator(".group").first
    expect(first.locator(".hit")).to_have_count(2)
    for said in ("work", "claude-code"):
        expect(first.locator(".meta").first).to_contain_text(said)
    hit = first.locator(".hit", has_text="eleven attempts")
    expect(hit.locator(".question")).to_have_text(QUESTION)
    assert hit.locator(".question").evaluate("node => node.clientHeight") < 40, "in one line"
    expect(hit.locator(".snippet")).to_have_text(ANSWER)
    expect(hit.locator("mark").first).to_have_text("retry")
    assert "2026" in (hit.locator("time").get_attribute("title") or ""), "the exact date on hover"
    unanswered = page.locator(".hit", has_text="no answer")
    expect(unanswered).to_have_count(1)
    expect(unanswered.locator(".snippet")).to_have_text("What is the retry budget of the importer?")
    expect(unanswered.locator(".question")).to_have_count(0)
    assert page.locator(".hit").last.inner_text() == unanswered.inner_text(), "behind what answers"


def test_the_keyboard_goes_in_the_order_that_is_shown_and_opens_the_hit_at_its_place(shown: Tab) -> None:
    page = shown.page
    search(page, "importer crane")
    hits = page.locator(".hit")
    page.keyboard.press("ArrowDown")
    for number in range(hits.count()):
        expect(hits.nth(number)).to_be_focused()
        page.keyboard.press("j")
    page.locator(".hit", has_text="eleven attempts").click()
    expect(page.locator(".reader .asked .text")).to_have_text(ANSWER)
    expect(page.locator(".reader .piece").first).to_contain_text("How often may the importer")


def test_messages_and_thinking_are_found_where_the_switches_say_so(shown: Tab) -> None:
    page = shown.page
    search(page, "where does the retry budget stand in the settings")
    expect(page.locator(".results")).not_to_contain_text("next to the pause")
    page.get_by_label("Thinking, too").check()
    expect(page.locator(".hit", has_text="next to the pause")).to_contain_text("thinking")
    page.get_by_label("Single messages").check()
    expect(page.locator(".question")).to_have_count(0)
    expect(page.locator(".hit", has_text="What is the retry budget")).to_contain_text("user")
    page.get_by_label("Thinking, too").uncheck()
    expect(page.locator(".results")).not_to_contain_text("next to the pause")
    page.get_by_label("Questions with answers").check()
    expect(page.locator(".question").first).to_be_visible()


def test_what_does_not_answer_is_said_first(shown: Tab) -> None:
    page = shown.page
    search(page, "Tuesday recipes for lemon cake in a hot oven")
    expect(page.locator("#view-search .said")).to_contain_text("Nothing recorded seems to answer this")
    assert page.locator("#view-search .said").inner_text().startswith("Nothing recorded")


def test_what_recall_was_worth_stands_on_the_page(shown: Tab, gateway: Gateway) -> None:
    page = shown.page
    page.get_by_role("link", name="Settings").click()
    card = page.locator(".card.recall")
    expect(card).to_contain_text("No agent asked")
    hook = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "session",
        "cwd": "/home/someone/work",
        "prompt": "Plan a party with balloons",
    }

    def counted() -> bool:
        """A hook that had no time to look is not counted."""
        gateway.machine.run("recall", "--hook", typed=json.dumps(hook))
        return bool(gateway.get("/api/status")["recall"]["prompts"])

    until(counted, "a prompt that was looked up")
    told = gateway.get("/api/status")["recall"]
    expect(card).to_contain_text("prompts met with silence")
    expect(card).to_contain_text(f"{round(100 * told['silent_share'])}%")
    expect(card).to_contain_text("crystal recall log")


def test_programs_ask_for_messages_and_thinking_too(gateway: Gateway) -> None:
    asked = {"query": "retry budget of the importer"}
    (best, *_) = gateway.post("/api/search", asked)["results"]
    assert best["turn"]["answered"]
    assert best["relevance"] > 0
    roles = {
        hit["role"]
        for hit in gateway.post("/api/search", {**asked, "by": "message", "thinking": True})["results"]
    }
    assert {"user", "assistant", "thinking"} <= roles
    assert gateway.ask("POST", "/api/search", {**asked, "by": "letter"}).status_code == 400
    shown = gateway.get(f"/api/show/{best['id']}?turn=true")
    assert shown["pieces"][0]["text"] == best["turn"]["question"]
    assert "thinking" not in {piece["role"] for piece in shown["pieces"]}

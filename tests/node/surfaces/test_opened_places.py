"""Words that stand in two projects are opened where they were found: by the command line, MCP, hook, gateway and page."""

import os
import re
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from crystal_node.base.settings import resolve
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput
from crystal_node.search.recall.selection import recall
from tests.support.chromium import chromium, tab
from tests.support.gateway import Gateway, running_gateway
from tests.support.machine import Machine, Vault, turn
from tests.support.mcp_client import connected, recorded, text_of
from tests.support.relay_process import RelayProcess

ANSWER = "Nine tries it is, within forty-nine minutes."
OURS = ("How often may the harbour importer retry?", "The importer's nine tries are in its settings now.")
THEIRS = ("Acme wants how many tries for the billing run?", "Acme pays seventy thousand for that, secretly.")
SAID = {"ours": OURS, "theirs": THEIRS}


def folder(machine: Machine, project: str) -> Path:
    path = machine.root / "work" / project
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="module")
def machine(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Where both projects have the same answer. The other project's is the later one."""
    made = Vault(relay, tmp_path_factory.mktemp("places")).core
    for day, (project, (question, more)) in enumerate(SAID.items(), 5):
        path = made.projects / f"-work-{project}" / f"{project}.jsonl"
        path.parent.mkdir(parents=True)
        spoken = (("user", question), ("assistant", ANSWER), ("user", "What follows?"), ("assistant", more))
        path.write_text(
            "".join(
                turn(
                    text,
                    session=project,
                    role=role,
                    moment=f"2026-01-{day:02}T09:00:{number:02}.000Z",
                    cwd=str(folder(made, project)),
                )
                for number, (role, text) in enumerate(spoken)
            )
        )
    made.call("capture")
    made.call("sync")
    return made


@pytest.fixture(scope="module")
def gateway(machine: Machine) -> Generator[Gateway]:
    with running_gateway(machine) as running:
        yield running


def found_id(machine: Machine, question: str) -> str:
    """What a person copies from the line of the hit that answers the question."""
    lines = machine.call("search", question).out.splitlines()
    words = [word for line in lines if question in line for word in line.split()]
    return next(word for word in words if re.fullmatch(r"[0-9a-f]{8,64}(@[0-9a-f]{8})?", word))


@pytest.mark.parametrize("project", ["ours", "theirs"])
def test_a_hit_is_shown_in_the_conversation_where_it_was_found(machine: Machine, project: str) -> None:
    question = SAID[project][0]
    given = found_id(machine, question)
    assert "@" in given
    out = machine.call("show", given).out
    assert question in out
    assert ANSWER in out
    other = SAID["theirs" if project == "ours" else "ours"]
    whole = machine.call("open", given).out
    assert SAID[project][1] in whole
    for text in other:
        assert text not in out + whole


def test_an_id_alone_shows_no_projects_conversation_and_says_which_there_are(machine: Machine) -> None:
    given = found_id(machine, OURS[0]).partition("@")[0]
    for command in ("show", "open"):
        refused = machine.run(command, given, check=False)
        assert refused.code == 2
        assert "stands in 2 projects" in refused.err
        for project in SAID:
            assert f"work/{project}" in refused.err
        assert "seventy thousand" not in refused.out + refused.err


@pytest.mark.parametrize("project", ["ours", "theirs"])
def test_in_a_projects_folder_an_id_alone_shows_its_own(
    machine: Machine, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = found_id(machine, OURS[0]).partition("@")[0]
    monkeypatch.chdir(folder(machine, project))
    assert SAID[project][0] in machine.call("show", given).out
    assert SAID[project][1] in machine.call("open", given).out
    assert os.fspath(Path.cwd()).endswith(project)


def test_an_id_with_its_place_can_be_forgotten_too(machine: Machine) -> None:
    refused = machine.call("forget", f"{'0' * 12}@12345678", check=False)
    assert refused.code == 10, "an id that nothing has, but a well-formed one"
    assert machine.call("forget", f"{'0' * 12}@1234", check=False).code == 2


async def test_an_agent_opens_a_result_where_it_was_found(machine: Machine) -> None:
    ids: list[str] = []
    async with connected(machine) as client:
        for project, (question, more) in SAID.items():
            result = await client.call_tool("crystal_search", {"query": question})
            hit = next(each for each in recorded(result) if question in each.text)
            opened = await client.call_tool("crystal_open", {"id": hit.id, "whole": "conversation"})
            assert not opened.is_error, text_of(opened)
            texts = "\n".join(piece.text for piece in recorded(opened))
            assert question in texts
            assert more in texts
            assert SAID["theirs" if project == "ours" else "ours"][1] not in texts
            # A piece of it opens the same conversation again.
            again = next(piece for piece in recorded(opened) if piece.text == ANSWER)
            assert again.id == hit.id
            ids.append(hit.id)
        alone = await client.call_tool("crystal_open", {"id": ids[0].partition("@")[0]})
        assert alone.is_error
        assert "stands in 2 projects" in text_of(alone)
        assert all(each in text_of(alone) for each in ids)
        assert "seventy thousand" not in text_of(alone)


async def test_a_listed_resource_is_read_where_it_stands(machine: Machine) -> None:
    async with connected(machine) as client:
        for link in (await client.list_resources()).resources:
            assert (await client.read_resource(str(link.uri))).contents


def test_the_gateway_shows_a_hit_where_it_was_found(gateway: Gateway) -> None:
    for project, (question, _) in SAID.items():
        results = gateway.post("/api/search", {"query": question})["results"]
        hit = next(each for each in results if each["turn"]["question"] == question)
        shown = gateway.get(f"/api/show/{hit['id']}@{hit['place']}?turn=true")
        assert (shown["session"], shown["pieces"][0]["text"]) == (project, question)
        refused = gateway.ask("GET", f"/api/show/{hit['id']}?turn=true")
        assert refused.status_code == 400
        assert "stands in 2 projects" in refused.text
        place = quote(str(folder(gateway.machine, "ours")))
        assert gateway.get(f"/api/show/{hit['id']}?folder={place}")["session"] == "ours"


def test_the_page_opens_a_hit_where_it_was_found(gateway: Gateway) -> None:
    assert gateway.url
    with chromium() as browser, tab(browser) as opened:
        page = opened.page
        page.goto(gateway.link())
        for question, _ in SAID.values():
            page.locator("#query").fill(question)
            with page.expect_response("**/api/search"):
                page.keyboard.press("Enter")
            expect(page.locator("#view-search [aria-busy]")).to_have_count(
                0
            )  # else the hit may be drawn again under the click
            page.locator(".hit", has_text=question).click()
            expect(page.locator(".reader .asked .text")).to_have_text(ANSWER)
            expect(page.locator(".reader .piece").first).to_contain_text(question)
        assert opened.faults == []


def test_a_hook_names_the_place_of_what_it_recalls(machine: Machine) -> None:
    settings = resolve(environment=machine.environment | {"CRYSTAL_HOME": str(machine.home)})
    settings = replace(settings, person_home=machine.root)
    start = HookInput(HookEvent.START, "new", str(folder(machine, "ours")), "startup")
    prompt = HookInput(HookEvent.PROMPT, "new", str(folder(machine, "ours")), prompt=OURS[0])
    with Finder(settings) as finder:
        texts = [
            recall(hook, settings, lambda: finder, 1_800_000_000_000, words_only=True).text
            for hook in (start, prompt)
        ]
    given = found_id(machine, OURS[0])
    assert f"({given})" in "\n".join(texts)

"""Hits are signed by what they are: the title of their conversation, of what is ordered and of what is pending here."""

import pytest

from crystal_mirror.operations import Capture, Piece
from crystal_node.base.agent_names import agent_alias
from crystal_node.search.finding.documents import ShowRequest
from crystal_node.search.finding.finder import shown
from crystal_node.search.titles import MESSAGES_MAX, titles_of
from tests.core.builders import NOW, apply, content_hash, forget, new_replica, origin
from tests.support.machine import Vault, transcript

SIGNED = "<system-reminder>Today is Monday.</system-reminder>"


def said(session: str, *texts: tuple[str, str], agent: str = "claude-code", since: int = NOW) -> Capture:
    pieces = tuple(
        Piece(text, role, since + number, f"{session}-{since}-{number}", 0)
        for number, (role, text) in enumerate(texts)
    )
    return Capture(agent, session, "work/it", "", "claude-code", pieces)


def test_a_title_is_the_first_real_prompt_whoever_ordered_it() -> None:
    replica = new_replica()
    database = replica.database
    apply(
        replica,
        said(
            "one", ("assistant", "Ready."), ("user", SIGNED), ("user", "Fix the pump of the dock. It leaks.")
        ),
    )
    replica.index_provisional(origin(100), said("two", ("user", "Paint the crane red. Then rest.")))
    replica.index_provisional(origin(101), said("one", ("user", "Later words of it."), since=NOW + 60_000))
    apply(replica, said("one", ("user", "Another agent's session."), agent="codex"))
    apply(replica, said("none", ("assistant", "Nobody asked me.")))
    keys = [
        ("claude-code", "one"),
        ("claude-code", "two"),
        ("codex", "one"),
        ("claude-code", "none"),
        ("x", "y"),
    ]
    assert titles_of(database, keys) == dict(
        zip(
            keys,
            ("Fix the pump of the dock", "Paint the crane red", "Another agent's session", "", ""),
            strict=True,
        )
    )
    assert titles_of(database, []) == {}
    document = shown(database, ShowRequest(id=content_hash("Paint the crane red. Then rest.").hex()))
    assert document.title == "Paint the crane red"


def test_a_forgotten_prompt_is_no_title_and_many_empty_ones_are_not_read() -> None:
    replica = new_replica()
    apply(replica, said("one", ("user", "Fix the secret pump."), ("user", "Paint the crane.")))
    replica.index_provisional(origin(100), forget("Fix the secret pump."))
    empty = [("user", f"<system-reminder>{number}</system-reminder>") for number in range(MESSAGES_MAX)]
    apply(replica, said("two", *empty, ("user", "Too late to be read.")))
    titles = titles_of(replica.database, [("claude-code", "one"), ("claude-code", "two")])
    assert list(titles.values()) == ["Paint the crane", ""]


def test_a_hit_shows_device_tool_project_and_title(vault: Vault) -> None:
    core = vault.core
    transcript(core, "Where does the crane stand? I forgot.", "It is painted at noon.", name="harbour")
    core.call("capture")
    core.call("sync")
    hit = core.call("search", "--json", "painted at noon").json["results"][0]
    assert hit["title"] == "Where does the crane stand?"
    heading = core.call("search", "painted at noon").out.splitlines()[0]
    for part in (hit["project"], f"claude-code on {hit['device_name']}", hit["title"]):
        assert part in heading
    told = core.call("show", hit["id"]).out.splitlines()[0]
    assert f"claude-code on {hit['device_name']}" in told
    assert hit["title"] in told


@pytest.mark.parametrize("former", [True, False])
def test_both_names_of_the_agent_find_what_was_recorded_under_either(vault: Vault, *, former: bool) -> None:
    """A home that was set up under the former default keeps it, and nothing that is stored is rewritten."""
    core = vault.core
    agent = "cc-mini" if former else "claude-code"
    if former:
        path = core.home / "config.json"
        text = path.read_text()
        assert '"claude-code"' in text
        path.write_text(text.replace('"claude-code"', '"cc-mini"'))
    transcript(core, "Where does the crane stand?")
    core.call("capture")
    for name in (agent, agent_alias(agent) or ""):
        (hit,) = core.call("search", "--json", "crane", "--agent", name).json["results"]
        assert hit["agent"] == agent
    assert core.call("status", "--json").json["agent"] == agent

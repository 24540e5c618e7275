"""What a person does with projects: memories are for one or for everywhere, and projects are linked, on every device."""

from pathlib import Path

import pytest

from tests.support.machine import Machine, Vault, turn

APP = "example.org/me/app"
FACT = "The app is released on Fridays."


def folder(machine: Machine, path: str, repository: str = "") -> Path:
    """A folder in the machine's home, with that remote."""
    place = machine.root / path
    place.mkdir(parents=True)
    if repository:
        (place / ".git").mkdir()
        (place / ".git" / "config").write_text(
            f'[remote "origin"]\n\turl = git@{repository.replace("/", ":", 1)}.git\n'
        )
    return place


def say(machine: Machine, place: Path, *texts: str) -> None:
    """A conversation in that folder."""
    path = machine.projects / place.name / f"{place.name}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(turn(text, session=place.name, cwd=str(place)) for text in texts))
    machine.call("capture")


def listed(machine: Machine, *options: str) -> list[str]:
    return [each["text"] for each in machine.call("memories", "list", "--json", *options).json["memories"]]


def scope(machine: Machine, identity: str) -> tuple[str, str]:
    shown = machine.call("memories", "show", "--json", identity[:12]).json
    return shown["scope"], shown["project"]


def test_a_memory_is_for_the_project_that_it_is_made_in_and_a_preference_for_all(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = vault.core
    monkeypatch.chdir(folder(core, "work/app", APP))
    made = core.call("remember", "--json", FACT).json
    assert (made["scope"], made["project"]) == ("project", APP)
    liked = core.call("remember", "--json", "Tabs are better.", "--category", "preference").json
    assert (liked["scope"], liked["project"]) == ("everywhere", "")
    asked = core.call("remember", "--json", "The team meets at ten.", "--scope", "everywhere").json
    assert asked["scope"] == "everywhere"
    monkeypatch.chdir(folder(core, "work/pump"))
    other = core.call("remember", "The pump hums.").out
    assert "for work/pump alone" in other
    monkeypatch.chdir(core.root)
    home = core.call("remember", "--json", "The attic is cold.").json
    assert home["scope"] == "everywhere", "the home itself is no project"
    assert listed(core, "--project", "pump") == ["The pump hums."]
    monkeypatch.chdir(core.root / "work/app")
    assert listed(core, "--scope", "project") == [FACT]
    assert set(listed(core, "--scope", "everywhere")) == {
        "Tabs are better.",
        "The team meets at ten.",
        "The attic is cold.",
    }
    assert f"for {APP}" in core.call("memories", "list").out


def test_a_scope_is_changed_and_told_of_on_every_device(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, node = vault.core, vault.add()
    monkeypatch.chdir(folder(core, "work/app", APP))
    made = core.call("remember", "--json", FACT).json["id"]
    vault.settle()
    assert scope(node, made) == ("project", APP)
    monkeypatch.chdir(node.root)
    node.call("memories", "edit", made[:12], "--scope", "everywhere")
    vault.settle()
    assert scope(core, made) == ("everywhere", "")
    core.call("memories", "edit", made[:12], "--project", "app")
    told = core.call("memories", "history", "--json", made[:12]).json["events"]
    assert [(each["what"], each["scope"], each["project"]) for each in told] == [
        ("remembered", "project", APP),
        ("amended", "everywhere", ""),
        ("amended", "project", APP),
    ]
    assert f"for {APP}" in core.call("memories", "history", made[:12]).out
    vault.settle()
    assert len(vault.digests()) == 1


def test_what_takes_a_memorys_place_is_for_the_same_project(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = vault.core
    monkeypatch.chdir(folder(core, "work/app", APP))
    old = core.call("remember", "--json", FACT).json["id"]
    monkeypatch.chdir(core.root)
    edited = core.call("memories", "edit", "--json", old[:12], "--text", "It is released on Mondays.").json
    assert edited["project"] == APP
    new = core.call("remember", "--json", "It is released daily.", "--supersedes", edited["id"][:12]).json
    assert new["project"] == APP
    again = core.call("remember", "--json", "It is released daily.").json
    assert again["project"] == APP, "said again elsewhere it stays where it was"
    wide = core.call("remember", "--json", "It is released daily.", "--scope", "everywhere").json
    assert wide["scope"] == "everywhere"
    core.call("sync")
    assert scope(core, new["id"]) == ("everywhere", "")


def test_a_project_that_is_none_is_named(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    core = vault.core
    monkeypatch.chdir(core.root)
    unknown = core.call("remember", FACT, "--project", "atlantis", check=False)
    assert (unknown.code, "no project is called atlantis" in unknown.err) == (10, True)
    assert "crystal projects link OLD NEW" in unknown.err
    nowhere = core.call("remember", FACT, "--scope", "project", check=False)
    assert (nowhere.code, "nothing says which project" in nowhere.err) == (2, True)
    both = core.call("remember", FACT, "--scope", "everywhere", "--project", "x", check=False)
    assert both.code == 2
    assert listed(core) == []
    say(core, folder(core, "a/app"), "something about the app")
    core.call("remember", "In the other one.", "--project", str(folder(core, "c/app")))
    several = core.call("remember", FACT, "--project", "app", check=False)
    assert (several.code, "2 projects are called app" in several.err) == (2, True)
    assert "a/app, c/app" in several.err


def test_a_home_of_nobody_is_no_project(vault: Vault) -> None:
    for arguments in (("link", "~nosuchuser/work", "."), ("unlink", "~nosuchuser", "x" * 5000)):
        refused = vault.core.call("projects", *arguments, check=False)
        assert refused.code == 10
        assert "no project is called" in refused.err


def test_projects_are_listed_and_linked_on_every_device(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, node = vault.core, vault.add()
    assert core.call("projects", "list", "--json").json == {"projects": []}
    place = folder(core, "work/app", APP)
    say(core, place, "the first words about it", "and the second")
    say(core, folder(core, "work/old-app"), "from before it was moved")
    monkeypatch.chdir(place)
    core.call("remember", FACT)
    vault.settle()
    by_name = {each["name"]: each for each in node.call("projects", "list", "--json").json["projects"]}
    assert set(by_name) == {APP, "work/old-app"}
    app = by_name[APP]
    assert (app["conversations"], app["messages"], app["memories"]) == (1, 2, 1)
    assert (app["folders"], app["linked"]) == (["work/app"], [])
    assert app["last_at"].startswith("2026-01-05")
    node.call("projects", "link", "old-app", "app")
    again = node.call("projects", "link", "--json", "app", "old-app").json
    assert again["linked"]
    assert _links(node) == {APP: ["work/old-app"], "work/old-app": [APP]}, "seen at once, before it is sent"
    vault.settle()
    assert _links(core) == _links(node)
    assert "linked with work/old-app" in core.call("projects", "list").out
    core.call("projects", "unlink", ".", "old-app")
    vault.settle()
    assert _links(node) == {APP: [], "work/old-app": []}
    refused = core.call("projects", "unlink", "app", "old-app", check=False)
    assert (refused.code, "are not linked" in refused.err) == (10, True)
    itself = core.call("projects", "link", ".", "app", check=False)
    assert (itself.code, "is one project" in itself.err) == (2, True)
    unknown = core.call("projects", "link", "app", "atlantis", check=False)
    assert unknown.code == 10
    assert len(vault.digests()) == 1


def _links(machine: Machine) -> dict[str, list[str]]:
    found = machine.call("projects", "list", "--json").json["projects"]
    return {each["name"]: each["linked"] for each in found}

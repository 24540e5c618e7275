"""A repository chooses no memories: what it says of itself opens no other folder's records, and puts none of its own there."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from crystal_core.projects import project_keys
from crystal_node.base.settings import Settings, resolve
from crystal_node.search.finding.finder import Finder
from crystal_node.search.recall.hook import HookEvent, HookInput, Recalled, output
from crystal_node.search.recall.selection import recall
from tests.support.machine import Machine, Vault, turn

CODEX = Path(__file__).parents[2] / "capture/fixtures/codex"
APP = "example.org/me/app"
SECRET = "The launch of the app is set for the ninth of May, and Acme pays for it."
PROMPT = "When is the launch of the app, and who pays for it?"


def remote(folder: Path, repository: str = APP) -> Path:
    """A folder whose files say that it is of that repository."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://{repository}.git\n')
    return folder


def say(machine: Machine, folder: Path, question: str, answer: str) -> None:
    """A conversation in that folder, captured."""
    name = f"s{len(list(machine.projects.rglob('*.jsonl')))}"
    path = machine.projects / "-work" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    spoken = (("user", question), ("assistant", answer))
    path.write_text("".join(turn(text, session=name, role=role, cwd=str(folder)) for role, text in spoken))
    machine.call("capture")


def settings_of(machine: Machine) -> Settings:
    settings = resolve(environment=machine.environment | {"CRYSTAL_HOME": str(machine.home)})
    return replace(settings, person_home=machine.root)


def recalled(machine: Machine, folder: Path, event: HookEvent = HookEvent.PROMPT) -> Recalled:
    settings = settings_of(machine)
    told = HookInput(event, "new", str(folder), "startup", PROMPT if event is HookEvent.PROMPT else "")
    with Finder(settings) as finder:
        return recall(told, settings, lambda: finder, 1_800_000_000_000, words_only=True)


def both(machine: Machine, folder: Path) -> str:
    """What a session in that folder is given, at its start and at the prompt."""
    return recalled(machine, folder, HookEvent.START).text + recalled(machine, folder).text


def pairs(machine: Machine) -> set[tuple[str, str]]:
    with Finder(settings_of(machine)) as finder:
        return set(finder.read(lambda database: list(project_keys(database)))) - {("", "")}


@pytest.fixture
def core(vault: Vault) -> Machine:
    """Work was done in a repository, and remembered."""
    say(vault.core, remote(vault.core.root / "work/app"), "When is the launch of the app?", SECRET)
    assert pairs(vault.core) == {("work/app", APP)}
    return vault.core


def test_a_folder_that_names_a_known_repository_is_given_nothing_of_it(core: Machine) -> None:
    assert "ninth of May" in both(core, core.root / "work/app")
    evil = remote(core.root / "downloads/evil")
    assert both(core, evil) == ""
    say(core, evil, "Who pays for the launch of the app?", "Mallory pays for the launch of the app.")
    assert ("downloads/evil", "") in pairs(core), "its name is not recorded either"
    for _ in range(2):
        assert "ninth of May" not in both(core, evil)
        assert "Mallory" not in both(core, core.root / "work/app")
        core.call("sync")
    with contextlib.chdir(evil):
        kept = core.call("remember", "--json", "Mallory pays for the launch.").json
        assert kept["project"] == "downloads/evil"
        assert (
            core.call("memories", "list", "--scope", "project", "--json").json["memories"][0]["id"]
            == kept["id"]
        )
    assert "Mallory" not in both(core, core.root / "work/app")


def test_nor_does_the_hook_print_it_and_it_names_the_command_to_the_person_alone(core: Machine) -> None:
    evil = remote(core.root / "downloads/evil")
    start = json.loads(output(HookEvent.START, recalled(core, evil, HookEvent.START)))
    assert list(start) == ["systemMessage"], "the agent is told nothing"
    assert f"crystal projects link . {APP}" in start["systemMessage"]
    assert output(HookEvent.PROMPT, recalled(core, evil)) == b""


def test_a_second_clone_is_linked_with_one_command(core: Machine) -> None:
    clone = remote(core.root / "src/clone")
    (clone / "docs").mkdir()
    assert recalled(core, clone, HookEvent.START).line.endswith(f"crystal projects link . {APP}")
    with contextlib.chdir(clone / "docs"):
        core.call("projects", "link", ".", APP)
    for folder in (clone, clone / "docs"):
        assert "ninth of May" in both(core, folder)
        assert recalled(core, folder, HookEvent.START).line.endswith("record.")
    say(core, clone / "docs", "Who bakes the launch cake?", "Noor bakes the launch cake.")
    say(core, clone, "Who plays at the launch?", "Mara plays at the launch.")
    at_work = recalled(core, core.root / "work/app", HookEvent.START).text
    assert "Mara" in at_work and "Noor" in at_work
    assert pairs(core) == {("work/app", APP), ("src/clone", "")}
    with contextlib.chdir(clone):
        core.call("projects", "unlink", ".", APP)
    assert "ninth of May" not in both(core, clone)
    assert "Mara" not in both(core, core.root / "work/app")


def test_another_device_has_the_project_in_the_same_folder_or_after_the_command(
    vault: Vault, core: Machine
) -> None:
    node = vault.add()
    vault.settle()
    assert "ninth of May" in both(node, remote(node.root / "work/app"))
    elsewhere = remote(node.root / "code/app")
    assert both(node, elsewhere) == ""
    with contextlib.chdir(elsewhere):
        node.call("projects", "link", ".", APP)
    assert "ninth of May" in both(node, elsewhere)
    vault.settle()
    assert both(core, core.root / "code/app") != "", "the link is for a folder of that name on all devices"


def test_a_moved_folder_and_a_renamed_repository_stay_known(core: Machine) -> None:
    (core.root / "work/app").rename(core.root / "moved")
    assert both(core, core.root / "moved") == ""
    with contextlib.chdir(core.root / "moved"):
        core.call("projects", "link", ".", APP)
    assert "ninth of May" in both(core, core.root / "moved")
    renamed = remote(core.root / "work/app", "example.org/me/renamed")
    with contextlib.chdir(renamed):
        core.call("projects", "link", ".", APP)
    assert "ninth of May" in both(core, renamed)


def test_a_folder_of_a_new_repository_is_linked_before_anything_was_said_in_it(core: Machine) -> None:
    new = remote(core.root / "work/new", "example.org/me/new")
    with contextlib.chdir(new):
        core.call("projects", "link", ".", APP)
    assert "ninth of May" in both(core, new)
    say(core, new, "Who sings at the launch?", "Ingrid sings at the launch.")
    assert ("work/new", "example.org/me/new") in pairs(core)
    assert "ninth of May" in both(core, new)
    assert "Ingrid" in both(core, core.root / "work/app")


def test_what_is_only_remembered_is_no_other_folders(vault: Vault) -> None:
    core = vault.core
    folder, evil = remote(core.root / "work/app"), remote(core.root / "downloads/evil")
    with contextlib.chdir(folder):
        assert core.call("remember", "--json", SECRET).json["project"] == APP
    assert both(core, evil) == ""
    assert "ninth of May" in both(core, folder)
    (listed,) = core.call("projects", "list", "--json").json["projects"]
    assert (listed["name"], listed["folders"], listed["linked"]) == (APP, ["work/app"], [])
    say(core, folder, "Is it on?", "It is on, in Bremen.")
    assert pairs(core) == {("work/app", APP)}
    vault.settle()
    assert both(core, evil) == ""


def test_a_repository_first_seen_from_within_is_that_of_its_root(vault: Vault) -> None:
    core = vault.core
    folder, evil = remote(core.root / "work/app"), remote(core.root / "work")
    (folder / "docs").mkdir()
    say(core, folder / "docs", "When is the launch of the app?", SECRET)
    for each in (folder, folder / "docs", folder / "gone"):
        assert "ninth of May" in both(core, each)
    assert both(core, evil) == "", "that it lies around does not count"


def test_a_worktree_is_of_the_repository_that_names_it_back(core: Machine) -> None:
    main = core.root / "work/app/.git"
    (main / "worktrees/fix").mkdir(parents=True)
    (main / "worktrees/fix/commondir").write_text("../..\n")
    (main / "worktrees/fix/gitdir").write_text(f"{core.root / 'trees/fix/.git'}\n")
    forged = core.root / "trees/forged"
    (forged / "git").mkdir(parents=True)
    (forged / ".git").write_text("gitdir: git\n")
    (forged / "git/commondir").write_text("../../../work/app/.git\n")
    (forged / "git/gitdir").write_text("../.git\n")
    for name in ("fix", "evil"):
        (core.root / "trees" / name).mkdir(parents=True)
        (core.root / "trees" / name / ".git").write_text(f"gitdir: {main / 'worktrees/fix'}\n")
    (core.root / "trees/plain").mkdir()
    (core.root / "trees/plain/.git").write_text(f"gitdir: {main}\n")
    assert "ninth of May" in both(core, core.root / "trees/fix")
    for name in ("evil", "plain", "forged"):
        assert both(core, core.root / "trees" / name) == "", name


def test_a_transcript_cannot_say_of_which_repository_it_is_either(core: Machine) -> None:
    evil = core.root / "downloads/evil"
    evil.mkdir(parents=True)
    fixture = next((CODEX / "sessions").rglob("*.jsonl"))
    said = (
        fixture.read_text()
        .replace("/home/mara/src/tidewatch", str(evil))
        .replace("/home/mara/src/vents", str(evil))
    )
    path = core.root / ".codex" / fixture.relative_to(CODEX)
    path.parent.mkdir(parents=True)
    path.write_text(said.replace("git.example.org/harbour/tidewatch", APP))
    core.call("capture")
    assert pairs(core) == {("work/app", APP), ("downloads/evil", "")}


def test_a_repository_around_the_home_is_no_project_of_the_folders_in_it(vault: Vault) -> None:
    core = vault.core
    remote(core.root, "example.org/me/dotfiles")
    say(core, core.root / "clients/acme", "When is the launch of the app?", SECRET)
    assert both(core, core.root / "clients/other") == ""
    assert pairs(core) == {("clients/acme", "")}

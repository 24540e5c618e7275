"""What SECURITY.md tells people to type works, block by block, and every command that it names exists with its options."""

import re
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import Protocol, cast

import pytest

from crystal_node.device.device import opened
from crystal_node.surfaces.cli.app import build
from tests.node.sync.administration.test_revocation import lets_in, root_of
from tests.support.invited import invite, settings_of
from tests.support.machine import Machine, Outcome, Vault
from tests.support.relay_process import RelayProcess, running_relay

PROJECT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```sh (?P<name>[a-z]+)\n(?P<script>.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(crystal [^`]+)`")
_ADDRESS = "https://relay.example.org"
_SECRET = "The deploy key for staging is in the safe behind the tide gauge."

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


class Parameter(Protocol):
    """An argument or option of the program."""

    opts: list[str]
    secondary_opts: list[str]


class Command(Protocol):
    """A command of the program, as far as it is looked at here. A group has `commands` as well."""

    params: list[Parameter]


def page() -> str:
    return (PROJECT / "SECURITY.md").read_text(encoding="utf-8")


def block(name: str) -> list[list[str]]:
    """The commands of one block, split as a shell does, without `crystal`."""
    scripts = {match["name"]: match["script"] for match in _BLOCK.finditer(page())}
    commands = [shlex.split(line) for line in scripts[name].splitlines()]
    assert {command[0] for command in commands} == {"crystal"}
    return [command[1:] for command in commands]


def follow(machine: Machine, name: str, *, typed: str = "", **replaced: str) -> list[Outcome]:
    """Types a block. Nobody is there to confirm, so commands that ask get `--yes`."""
    done: list[Outcome] = []
    for command in block(name):
        words = [replaced.get(re.sub(r"\W+", "_", word), word) for word in command]
        asks = words[:2] in (["devices", "revoke"], ["recovery", "show"], ["recovery", "replace"])
        asks = asks or words[0] in ("init", "prune")
        done.append(machine.call(*words, *(["--yes"] if asks else []), typed=typed if "-" in words else ""))
    return done


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[RelayProcess]:
    with running_relay(tmp_path_factory.mktemp("relay") / "store") as running:
        yield running


@pytest.fixture
def vault(relay: RelayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vault:
    monkeypatch.chdir(tmp_path)
    return Vault(relay, tmp_path)


def relay_token(machine: Machine) -> str | None:
    with opened(settings_of(machine)) as device:
        return device.keys.token(device.member.device_id)


def test_a_lost_device_is_out_and_the_relay_keeps_nothing_under_its_keys(vault: Vault) -> None:
    laptop = invite(vault, "laptop")
    vault.settle()
    _, pruned = follow(vault.core, "lost")
    assert "Sealed again:" in pruned.out
    vault.core.call("remember", "Said after it was lost.")
    vault.core.call("sync")
    assert laptop.call("sync", check=False).code == 5
    assert laptop.found("said after it was lost") == []


def test_a_kit_is_made_and_typed_back(vault: Vault, tmp_path: Path) -> None:
    follow(vault.core, "kit")
    assert (tmp_path / "kit.txt").stat().st_mode & 0o077 == 0
    assert "recovery-kit" not in {
        each["name"] for each in vault.core.call("status", "--json").json["concerns"]
    }


def test_a_lost_core_is_revoked_from_another_device_with_the_kit(vault: Vault, tmp_path: Path) -> None:
    tablet = invite(vault, "tablet")
    name = next(each["name"] for each in vault.core.call("devices", "--json").json["devices"])
    vault.core.call("devices", "rename", name, "desktop")
    vault.settle()
    vault.core.call("recovery", "show", "--out", "kit.txt", "--yes")
    follow(tablet, "core", typed=(tmp_path / "kit.txt").read_text(encoding="utf-8"))
    assert tablet.call("status", "--json").json["role"] == "core"
    assert vault.core.call("sync", check=False).code == 5


def test_a_kit_that_was_seen_opens_nothing_afterwards(vault: Vault, tmp_path: Path) -> None:
    vault.core.call("recovery", "show", "--out", "seen.txt", "--yes")
    replaced, listed = follow(vault.core, "seen")
    assert "root" in replaced.out
    assert "core" in listed.out.lower()
    thief = Machine(tmp_path / "thief")
    thief.root.mkdir()
    refused = thief.call(
        *("recovery", "restore", "--relay", vault.relay.url, "--kit", str(tmp_path / "seen.txt"), "--yes"),
        check=False,
    )
    assert refused.code != 0


def test_after_a_break_in_the_new_relay_has_everything_and_knows_nothing_that_the_old_one_saw(
    vault: Vault, tmp_path: Path
) -> None:
    vault.core.call("remember", "Kept through the break-in.")
    vault.settle()
    seen, secret = relay_token(vault.core), root_of(vault.core).relay_secret
    with running_relay(tmp_path / "another") as clean:
        follow(
            vault.core,
            "relay",
            typed=clean.enroll_token + "\n",
            https_relay_example_org=clean.url,
        )
        assert relay_token(vault.core) != seen
        assert (lets_in(vault.core, secret), lets_in(vault.core, root_of(vault.core).relay_secret)) == (
            False,
            True,
        )
        vault.relay = clean
        newcomer = vault.add()
        newcomer.call("sync")
        assert newcomer.found("kept through the break-in") == ["Kept through the break-in."]


def test_a_secret_that_was_recorded_is_found_and_forgotten(vault: Vault) -> None:
    vault.core.call("remember", _SECRET)
    vault.settle()
    found = vault.core.call("search", "--json", "deploy key for staging").json["results"]
    searched, _, report = follow(vault.core, "secret", ID=found[0]["id"])
    assert "tide gauge" in searched.out
    assert report.code == 0
    assert vault.core.found("deploy key for staging") == []


def test_every_command_that_the_page_names_exists_with_its_options() -> None:
    named = [shlex.split(each) for each in _INLINE.findall(page())]
    named += [["crystal", *words] for name in _names() for words in block(name)]
    assert len(named) > 15
    assert [faults for command in named if (faults := unknown(command[1:]))] == []


@pytest.mark.parametrize("command", ["devices revok x", "no-such", "prune --rewrites", "forget --all"])
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    assert unknown(command.split()) != ""


def _names() -> list[str]:
    return [match["name"] for match in _BLOCK.finditer(page())]


def test_each_block_is_followed_by_a_test_here() -> None:
    followed = set(re.findall(r'follow\(\s*[\w.]+,\s*"(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert followed == set(_names())


def unknown(words: list[str]) -> str:
    """What of a command is not in the program's tree; "" if all of it is."""
    tree = cast("Command", build(()))
    told = list(words)
    while told and not told[0].startswith("-") and (commands := getattr(tree, "commands", None)):
        if told[0] not in commands:
            return f"{shlex.join(words)}: no command {told[0]}"
        tree = commands[told.pop(0)]
    options = {name for each in tree.params for name in (*each.opts, *each.secondary_opts)}
    strange = [each for each in told if each.startswith("--") and each not in options]
    return f"{shlex.join(words)}: no option {strange[0]}" if strange else ""

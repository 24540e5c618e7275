"""An operator's link: one line brings a person's machine to the relay, once, and shows its token nowhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.machine import Machine
from tests.support.operating import crystal_relay
from tests.support.relay_process import RelayProcess


def a_link(relay: RelayProcess) -> str:
    return crystal_relay(
        "tokens", "create", "--link", relay.url, "--store", relay.directory.as_uri()
    ).out.strip()


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.parametrize("command", ["init", "up"])
def test_one_line_makes_a_vault_at_the_operators_relay_once_and_its_token_stays_nowhere(
    relay: RelayProcess, tmp_path: Path, command: str
) -> None:
    link = a_link(relay)
    address, _, token = link.partition("#enrol=")
    assert (address, len(token)) == (relay.url, len("crystal_enrol_") + 43)
    (tmp_path / "first").mkdir()
    first = Machine(tmp_path / "first")
    words = {
        "init": ("init", "--role", "core", "--relay", "-", "--json"),
        "up": ("up", "--relay", "-", "--no-service", "--no-hooks", "--no-mcp", "--capture", "none", "--yes"),
    }[command]
    done = first.call(*words, typed=f"{link}\n")
    assert token not in done.out + done.err
    assert files_with(first.root, token) == []
    assert first.call("status", "--json").json["relay"] == relay.url

    (tmp_path / "second").mkdir()
    again = Machine(tmp_path / "second").call(
        "init", "--role", "core", "--relay", link, "--json", check=False
    )
    assert (again.code, "used up" in again.error["error"]) == (5, True)
    assert token not in again.out + again.err


def shortened(link: str) -> str:
    return link[:-1]


@pytest.mark.parametrize(
    ("spoilt", "more", "said"),
    [
        (shortened, (), "damaged"),
        (str, ("--enroll-token", "another-token-of-16"), "an enrolment token of its own"),
    ],
)
def test_a_link_that_cannot_be_used_is_refused_without_being_shown(
    relay: RelayProcess, machine: Machine, spoilt: Callable[[str], str], more: tuple[str, ...], said: str
) -> None:
    link = a_link(relay)
    refused = machine.call(
        "init", "--role", "core", "--relay", "-", *more, "--json", typed=spoilt(link), check=False
    )
    assert said in refused.error["error"]
    assert refused.error["hint"]
    assert link[-20:-1] not in refused.out + refused.err
    assert not (machine.home / "config.json").exists()

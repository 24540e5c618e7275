"""A revocation while watchers run, with real processes: the revoked device knows within seconds, the others say so."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import IO

from tests.node.sync.administration.test_devices import device_id
from tests.node.sync.administration.test_revocation import root_of
from tests.node.sync.administration.test_revocation_crashes import finished
from tests.support.invited import invite
from tests.support.machine import Machine, Vault

KNOWS_SECONDS_MAX = 20.0
"""A watcher that is not told looks by itself only after 50."""
_STARTS_SECONDS_MAX = 30.0


class Watcher:
    """A `crystal sync --watch` process, with all that it says, as it says it."""

    def __init__(self, machine: Machine) -> None:
        self.process: subprocess.Popen[str] = machine.start("sync", "--watch", "--json")
        self.lines: list[str] = []
        streams = (self.process.stdout, self.process.stderr)
        self._readers = [threading.Thread(target=self._read, args=(stream,)) for stream in streams]
        for reader in self._readers:
            reader.start()

    def said(self) -> str:
        return "\n".join(self.lines)

    def events(self, name: str) -> list[str]:
        found = [json.loads(line) for line in self.lines if line.startswith('{"at"')]
        return [event["text"] for event in found if event["event"] == name]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(_STARTS_SECONDS_MAX)
        for reader in self._readers:
            reader.join(_STARTS_SECONDS_MAX)
        return code

    def _read(self, stream: IO[str] | None) -> None:
        assert stream is not None
        with stream:
            for line in stream:
                self.lines.append(line.rstrip("\n"))


@contextmanager
def watching(*machines: Machine) -> Generator[list[Watcher]]:
    watchers = [Watcher(machine) for machine in machines]
    try:
        for machine in machines:
            until(partial(_is_watched, machine), _STARTS_SECONDS_MAX)
        yield watchers
    finally:
        for watcher in watchers:
            watcher.process.kill()
            watcher.stop()


def _is_watched(machine: Machine) -> bool:
    return bool(machine.call("status", "--json").json["watching"])


def until(condition: Callable[[], object], seconds: float) -> float:
    """Waits for it, and returns how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + seconds, "it did not come to that in time"
        time.sleep(0.02)
    return time.monotonic() - started


def test_a_live_device_that_is_revoked_knows_within_seconds_and_the_others_say_by_whom(vault: Vault) -> None:
    phone, tablet = invite(vault, "phone"), invite(vault, "tablet")
    vault.core.call("devices", "rename", device_id(vault.core), "desktop")
    vault.settle()
    with watching(vault.core, phone, tablet) as (core, out, other):
        vault.core.call("remember", "Everybody is up to date.")
        for machine in (phone, tablet):
            until(partial(machine.found, "everybody"), _STARTS_SECONDS_MAX)
        vault.core.call("devices", "revoke", "phone", "--yes")
        until(lambda: "revoked" in out.said(), KNOWS_SECONDS_MAX)
        until(lambda: other.events("news"), KNOWS_SECONDS_MAX)
        assert "phone" in other.events("news")[0]
        assert "revoked by desktop" in other.events("news")[0]
        vault.core.call("remember", "After the revocation.")
        until(lambda: tablet.found("after the revocation"), _STARTS_SECONDS_MAX)
        assert "After the revocation." not in phone.found("after the revocation")
        assert [watcher.stop() for watcher in (core, other)] == [0, 0]
    says_that_it_is_revoked(phone)
    assert [each["event"] for each in tablet.call("status", "--json").json["news"]] == ["revoked"], (
        "a watcher that says it does not take it from the person"
    )


def says_that_it_is_revoked(machine: Machine) -> None:
    """Every command that needs the relay names the reason and the way back, not a token that may have been lost."""
    for command in (["sync"], ["pair"], ["role", "--claim", "--yes"], ["devices", "renew-keys"]):
        outcome = machine.call(*command, check=False)
        assert (outcome.code, "was revoked" in outcome.err, "--new-keys" in outcome.err) == (7, True, True), (
            command,
            outcome.err,
        )
    for outcome in (
        machine.call("search", "after"),
        machine.call("devices"),
        machine.call("doctor", check=False),
    ):
        assert "lost its tokens" not in outcome.err + outcome.out
        assert "revoked" in outcome.err + outcome.out


def test_a_watcher_of_the_same_home_and_the_command_may_both_finish_a_revocation(vault: Vault) -> None:
    """Both tell the relay and put the new root in place, at once: it comes to the same."""
    thief = vault.add()
    before = root_of(vault.core)
    with watching(vault.core, thief) as (core, out):
        until(partial(knows, vault.core, thief), _STARTS_SECONDS_MAX)
        vault.core.call("devices", "revoke", device_id(thief), "--yes")
        until(lambda: "revoked" in out.said(), KNOWS_SECONDS_MAX)
        vault.core.call("remember", "The watcher goes on.")
        until(lambda: core.events("synced"), _STARTS_SECONDS_MAX)
        assert core.stop() == 0
        assert core.events("failed") == []
    finished(vault.core, device_id(thief), before)


def knows(machine: Machine, other: Machine) -> bool:
    return device_id(other) in {
        row["id"] for row in machine.call("devices", "--json", "--offline").json["devices"]
    }

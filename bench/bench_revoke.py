"""Revoking: how soon a live device knows that it is out, with real processes, and what new keys for 100 devices cost."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import Row, timed, value_at_most
from crystal_core.replica import Replica
from crystal_crypto.hierarchy import Root
from crystal_crypto.identity import DeviceIdentity
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.devicelog.records import Details
from crystal_mirror.membership.administration import NewDevice, add_device, renew_generation, revoke
from crystal_mirror.membership.founding import found
from crystal_mirror.membership.member import Member, load_keys, load_log
from crystal_mirror.requests import Flow, Get, GetMany, List, Listing, PutNew
from crystal_node.device.journal import SqliteJournal
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay

_DEVICES = 100
_KNOWS_SECONDS_MAX = 60.0
_NOW_MS = 1_760_000_000_000


def run(quick: bool) -> list[Row]:
    """The figures of revoking."""
    with tempfile.TemporaryDirectory(prefix="crystal-bench-") as folder:
        return [
            *_new_keys(Path(folder), repeat=3 if quick else 9),
            _live(Path(folder), devices=1 if quick else 5),
        ]


def _new_keys(folder: Path, *, repeat: int) -> list[Row]:
    """All of it but the network: sealing for each device, the entry, its verification, and its way to the disk."""
    vault = _Vault(folder)
    newcomers = [vault.add(number) for number in range(_DEVICES - 1)]
    renewing = timed(lambda: vault.run(renew_generation(vault.core, now_ms=_NOW_MS)), repeat=repeat).median
    last = newcomers.pop()
    started = time.perf_counter()
    vault.run(revoke(vault.core, last.id, now_ms=_NOW_MS))
    revoking = time.perf_counter() - started
    reading = timed(
        lambda: KeyRing.of_device(newcomers[0], load_log(vault.core.journal, vault.core.vault)).current(),
        repeat=repeat,
    ).median
    return [
        Row(
            name=f"new keys for {_DEVICES} devices",
            value=renewing * 1000,
            unit="ms",
            target=value_at_most(1000),
            note="sealed, signed, verified, on disk",
        ),
        Row(
            name=f"revoking one of {_DEVICES} devices",
            value=revoking * 1000,
            unit="ms",
            target=value_at_most(1000),
            note="the same, and its streams' ends",
        ),
        Row(
            name=f"a device log of {_DEVICES} devices read from disk, to the newest key",
            value=reading * 1000,
            unit="ms",
        ),
    ]


class _Vault:
    """A Core with its databases in files, and a store of plain objects."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, bytes] = {}
        root, identity = Root.generate(), DeviceIdentity.generate()
        journal = SqliteJournal.open(folder / "state.db")
        self.run(found(identity, root, journal, os.urandom, Details("core", "", _NOW_MS, identity.id)))
        replica = Replica.open(folder / "crystal.db", load_keys(identity, load_log(journal, root.vault))[1])
        self.core = Member.open(identity, root.vault, journal, replica, os.urandom, root)

    def add(self, number: int) -> DeviceIdentity:
        identity = DeviceIdentity.generate()
        newcomer = NewDevice(identity.id, identity.signing.public, identity.exchange.public)
        self.run(add_device(self.core, newcomer, name=f"device {number}", system="", now_ms=_NOW_MS))
        return identity

    def run(self, flow: Flow[Any]) -> Any:
        reply: Any = None
        while True:
            try:
                request = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            match request:
                case Get(key):
                    reply = self.objects.get(key)
                case GetMany(keys):
                    reply = [self.objects.get(key) for key in keys]
                case PutNew(key, body):
                    reply = self.objects.setdefault(key, body) is body
                case List(prefix, after, limit):
                    found_keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
                    reply = Listing(tuple(found_keys[:limit]), len(found_keys) > limit)
                case _:
                    raise AssertionError(f"administering asks for no {type(request).__name__}")


def _live(folder: Path, *, devices: int) -> Row:
    """From the start of `crystal devices revoke` until the watcher on the revoked device has said that it is out."""
    relay = DemoRelay(folder / "relay")
    relay.start()
    try:
        core = DemoDevice(folder / "core")
        core.run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
        samples = sorted(_known_after(folder / f"device-{number}", core, relay) for number in range(devices))
    finally:
        relay.stop()
    return Row(
        name="a live device knows that it was revoked, slowest",
        value=samples[-1],
        unit="s",
        target=value_at_most(5),
        note=f"{devices} devices that held the root, from the start of the command",
    )


def _known_after(home: Path, core: DemoDevice, relay: DemoRelay) -> float:
    device = DemoDevice(home)
    code = str(core.run("pair", "--offline", "--yes")["code"])
    identity = str(device.run("pair", "--code", "-", "--relay", relay.url, typed=code)["device"])
    device.run("sync")
    said = home.with_suffix(".said")
    with said.open("w") as output:
        watcher = subprocess.Popen(
            [sys.executable, "-m", "crystal_node", "sync", "--watch"],
            env=device.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _until(lambda: bool(device.run("status")["watching"]))
        time.sleep(1.0)  # its first round, and its long-polls
        started = time.perf_counter()
        core.run("devices", "revoke", identity, "--yes")
        _until(lambda: "revoked" in said.read_text())
        # The command may have ended later than the device knew; what counts is when it was seen to know, at the latest.
        return time.perf_counter() - started
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(30)


def _until(condition: Any) -> None:
    deadline = time.perf_counter() + _KNOWS_SECONDS_MAX
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"it did not come to that within {_KNOWS_SECONDS_MAX:.0f} s")
        time.sleep(0.01)

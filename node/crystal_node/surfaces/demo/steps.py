"""The steps of ``crystal demo``.

A relay, a Core ("desktop") and Nodes ("laptop", "tablet", later "phone"). Each step runs the real ``crystal`` command in
its own process, and is reported in one line with its time and bytes. Nothing outside the demo's folder is written; this
machine's own transcripts are only read, and only when asked for.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crystal_crypto.errors import CrystalError
from crystal_node.base.errors import ExitCode
from crystal_node.base.wording import counted, one_line, size
from crystal_node.surfaces.demo.machines import (
    DemoCommandFailed,
    DemoDevice,
    DemoRelay,
    agents,
    pair,
    say,
    until_found,
)
from crystal_node.surfaces.demo.source import DemoSource

DESKTOP, LAPTOP, TABLET, PHONE = "desktop", "laptop", "tablet", "phone"
FILE = "agents/tide/CONTEXT.md"
"""Written on one device, in its memory home."""
_EXPECTED_CHARS_MAX = 2000
"""Of a question, search shows so much."""
SAID = "The lock keeper asks for the tide tables of next week, on paper."
"""Written by some tool on one device, while agents run."""


class DemoFailed(CrystalError):
    """A step did not show what it must. The message names it."""

    exit_code = ExitCode.UNEXPECTED
    hint = "Run `crystal demo --keep` and look at what the homes hold."


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One finished step: what happened, its seconds, and the bytes that it moved or read."""

    text: str
    seconds: float
    bytes: int


@dataclass
class Demo:
    """One run. ``tell`` is called after each step."""

    source: DemoSource
    tell: Callable[[DemoStep], None]
    folder: Path
    devices: dict[str, DemoDevice] = field(default_factory=dict[str, DemoDevice])
    steps: list[DemoStep] = field(default_factory=list[DemoStep])

    def run(self) -> None:
        """Run all steps.

        Raises:
            DemoFailed: a step failed, or did not show what it must.
        """
        relay = DemoRelay(self.folder / "relay")
        try:
            self._step(lambda: self._start(relay))
            self._step(lambda: self._found(relay))
            self._step(lambda: self._join(relay))
            self._step(self._capture)
            self._step(self._send)
            self._step(self._order)
            self._step(self._spread)
            self._step(self._share_file)
            self._step(self._compare)
            self._step(lambda: self._look_into(relay))
            self._step(lambda: self._revoke(relay))
            self._step(lambda: self._come_in_by_snapshot(relay))
            self._step(self._hand_over)
            self._run_agents()
            self._step(lambda: self._stop(relay))
            self._step(lambda: self._find(DESKTOP))
            self._step(lambda: self._find(LAPTOP))
            self._step(self._shut_out)
        finally:
            relay.stop()

    def _step(self, work: Callable[[], tuple[str, int]]) -> None:
        started = time.monotonic()
        text, moved = work()
        step = DemoStep(text, time.monotonic() - started, moved)
        self.steps.append(step)
        self.tell(step)

    def _start(self, relay: DemoRelay) -> tuple[str, int]:
        relay.start()
        return f"A relay serves at {relay.url}, on an empty folder.", 0

    def _found(self, relay: DemoRelay) -> tuple[str, int]:
        desktop = self._device(DESKTOP)
        desktop.run(
            "init", "--role", "core", "--relay", relay.url, "--name", DESKTOP, "--yes", token=relay.token
        )
        return "desktop has made a new vault and is its Core.", relay.stored_bytes()

    def _join(self, relay: DemoRelay) -> tuple[str, int]:
        before = relay.stored_bytes()
        digits = [pair(self.devices[DESKTOP], self._device(name), name) for name in (LAPTOP, TABLET)]
        self._must(len(set(digits)) == len(digits), "two pairings had the same digits")
        return (
            f"desktop invited laptop and tablet, and was told the digits that they showed: {' and '.join(digits)}.",
            max(0, relay.stored_bytes() - before),
        )

    def _capture(self) -> tuple[str, int]:
        report = self.devices[LAPTOP].run("capture", *map(str, self.source.paths))
        messages, redacted = int(report["messages"]), int(report["redacted"])
        self._must(messages > 0, "the capture found no messages")
        said = f", blanked out {counted(redacted, 'credential')}" if redacted else ""
        return (
            f"laptop recorded {counted(messages, 'message')} of {self.source.what}{said}.",
            self.source.bytes,
        )

    def _send(self) -> tuple[str, int]:
        report = self.devices[LAPTOP].run("sync")
        self._must(int(report["pushed_bytes"]) > 0, "the laptop had nothing to send")
        return "laptop sent them, sealed.", _moved(report)

    def _order(self) -> tuple[str, int]:
        report = self.devices[DESKTOP].run("sync")
        self._must(int(report["collected"]) > 0, "the Core found nothing to take in")
        return "desktop opened and embedded them, and published the result, sealed again.", _moved(report)

    def _spread(self) -> tuple[str, int]:
        reports = [self.devices[name].run("sync") for name in (LAPTOP, TABLET)]
        self._must(all(int(report["applied"]) > 0 for report in reports), "a Node has applied nothing")
        self._must(int(reports[0]["pending"]) == 0, "the laptop's outbox did not empty")
        return "laptop and tablet took that over; the laptop's outbox is empty.", sum(map(_moved, reports))

    def _share_file(self) -> tuple[str, int]:
        written = self.devices[LAPTOP].home / FILE
        written.parent.mkdir(parents=True)
        written.write_text(f"{self.source.expected}\n", encoding="utf-8")
        moved = 0
        for name in (LAPTOP, DESKTOP, LAPTOP, TABLET):
            moved += _moved(self.devices[name].run("sync"))
        found = [(device.home / FILE).read_bytes() for device in self.devices.values()]
        self._must(len(set(found)) == 1, "a file is not the same everywhere")
        return f"laptop wrote {FILE} into its memory home; it is on all three.", moved

    def _compare(self) -> tuple[str, int]:
        found = {str(device.run("verify")["digest"]) for device in self.devices.values()}
        self._must(len(found) == 1, "the devices' digests differ")
        return f"All three hold the same memory, to the last row: digest {found.pop()[:16]}.", 0

    def _look_into(self, relay: DemoRelay) -> tuple[str, int]:
        looked, found = relay.look_for([*self.source.phrases, *NAMES])
        self._must(not found, f"the relay's files hold {found[:1]!r} in clear")
        return "The relay's files hold none of the words, no device's name, and no file's.", looked

    def _revoke(self, relay: DemoRelay) -> tuple[str, int]:
        before = relay.stored_bytes()
        report = self.devices[DESKTOP].run("devices", "revoke", TABLET, "--yes")
        self.devices[LAPTOP].run("sync")
        self.devices[LAPTOP].run("remember", "--", self.source.afterwards)
        for name in (LAPTOP, DESKTOP):
            self.devices[name].run("sync")
        try:
            self.devices[TABLET].run("sync")
        except DemoCommandFailed:
            generation = int(report["generation"])
            said = f"desktop revoked tablet: the others have new keys (generation {generation}), and the relay is shut to it."
            return said, max(0, relay.stored_bytes() - before)
        raise DemoFailed("a revoked device could sync")

    def _come_in_by_snapshot(self, relay: DemoRelay) -> tuple[str, int]:
        before = relay.stored_bytes()
        self.devices[DESKTOP].run("snapshot")
        made = max(0, relay.stored_bytes() - before)
        pair(self.devices[DESKTOP], self._device(PHONE), PHONE)
        self.devices[PHONE].run("sync")
        digests = {self.devices[name].run("verify")["digest"] for name in (DESKTOP, PHONE)}
        self._must(len(digests) == 1, "what was read from the snapshot is not the same memory")
        self._must((self.devices[PHONE].home / FILE).exists(), "a file did not come along")
        return "desktop made a snapshot, read it back, and phone came in by it: the same digest.", made

    def _hand_over(self) -> tuple[str, int]:
        desktop, laptop = self.devices[DESKTOP], self.devices[LAPTOP]
        with ThreadPoolExecutor(1) as beside:
            leaving = beside.submit(desktop.run, "demote", "--to", LAPTOP, "--yes")
            moved = 0
            while not leaving.done():
                moved += _moved(laptop.run("sync"))
            leaving.result()
        laptop.run("sync")
        self._must(laptop.run("role")["role"] == "core", "the Core's role did not move")
        return (
            "desktop handed the Core's role to laptop, and goes on as a Node: nothing was lost on the way.",
            moved,
        )

    def _run_agents(self) -> None:
        desktop, laptop = self.devices[DESKTOP], self.devices[LAPTOP]
        with agents(desktop, laptop):
            self._step(self._follow_a_conversation)
            self._step(self._ask_the_core)

    def _follow_a_conversation(self) -> tuple[str, int]:
        say(self.devices[DESKTOP], "harbour-bot", SAID)
        seconds = until_found(self.devices[LAPTOP], SAID)
        said = (
            "The background service runs on desktop and laptop: what a tool wrote on desktop was in laptop's memory "
            f"after {seconds:.2f} s."
        )
        return said, len(SAID)

    def _ask_the_core(self) -> tuple[str, int]:
        report = self.devices[DESKTOP].run("run", "verify", "--on", LAPTOP, "--wait")
        self._must(report["state"] == "done", f"laptop was asked to verify, and answered {report['state']}")
        return (
            "desktop asked laptop to check its whole memory: it did, once, and its answer came back sealed.",
            0,
        )

    def _shut_out(self) -> tuple[str, int]:
        hits: list[dict[str, Any]] = self.devices[TABLET].run("search", "--", self.source.afterwards)[
            "results"
        ]
        self._must(
            not any(self.source.afterwards in str(hit["text"]) for hit in hits),
            "tablet reads what came later",
        )
        return "tablet keeps what it had, and has nothing of what laptop wrote since.", 0

    def _stop(self, relay: DemoRelay) -> tuple[str, int]:
        relay.stop()
        return "The relay is stopped: what follows is offline.", 0

    def _find(self, name: str) -> tuple[str, int]:
        result = self.devices[name].run("search", "-n", "3", "--", self.source.query)
        hits: list[dict[str, Any]] = result["results"]
        wanted = next((hit for hit in hits if self._is_expected(hit)), None)
        self._must(wanted is not None, f"{name} does not find what was captured on laptop")
        assert wanted is not None
        text = one_line(str(wanted["text"]), 80)
        return f'{name} finds it for "{one_line(self.source.query, 60)}": {text}', len(
            str(wanted["text"]).encode()
        )

    def _is_expected(self, hit: dict[str, Any]) -> bool:
        turn: dict[str, Any] = hit["turn"] or {}
        words = self.source.expected[:_EXPECTED_CHARS_MAX]
        return words in str(hit["text"]) or words in str(turn.get("question", ""))

    def _device(self, name: str) -> DemoDevice:
        self.devices[name] = DemoDevice(self.folder / name)
        return self.devices[name]

    def _must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise DemoFailed(otherwise)


NAMES = (DESKTOP, LAPTOP, TABLET, FILE)


def make_folder() -> Path:
    """Make a new folder for a demo, readable by its owner only."""
    return Path(tempfile.mkdtemp(prefix="crystal-demo-"))


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def describe_step(step: DemoStep) -> str:
    """The line shown for a step."""
    moved = f", {size(step.bytes)}" if step.bytes else ""
    return f"{step.text} ({step.seconds:.2f} s{moved})"


def _moved(report: dict[str, Any]) -> int:
    return int(report["bytes_up"]) + int(report["bytes_down"])

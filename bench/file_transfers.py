"""Files between two devices as real processes: seconds until they are on the other one, processor time, bytes on the wire.

Two homes with `crystal sync --watch` at a relay of their own, and, where it is installed, two of Syncthing beside them. The
same steps are made in both: many small files, one new file, a large file, a kilobyte changed in it; and, but for a quick run,
10,000 files at once and a file of 2 GB, with the peaks of memory. Syncthing is asked to scan as soon as the files are there,
since it would wait ten seconds; Crystal's watch notices by itself. They are compared with commands that people would run by
hand (`bench/folder_transfers.py`), too.

Bytes are those of the loopback interface: a process that passed connections on would take a quarter of the processor.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.folder_transfers import folder_pairs
from bench.harness import Row, ratio_at_most, value_at_most
from bench.transferred import Figures, Moving, RandomBytes, has, written
from crystal_node.surfaces.demo.machines import DemoDevice, DemoRelay

KIB, MIB = 1024, 1024 * 1024
SMALL_FILES = 1_000
SMALL_BYTES = 4 * KIB
LARGE_BYTES = 100 * 1_000_000
MANY_FILES = 10_000
HUGE_BYTES = 2_000_000_000
ARRIVES_SECONDS_MAX = 900.0
LOOPBACK_BYTES = Path("/sys/class/net/lo/statistics/rx_bytes")
_POLL_SECONDS = 0.01
_SETTLES_SECONDS = 8.0
"""Until a step before is over: acknowledgements, and Crystal's own rest after a look at the home."""


class Counter:
    """Passes TCP connections on to a port and counts their bytes, in threads of this process."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # not there yet
                here.close()
                continue
            for side in (here, there):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass_on, args=(here, there), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(there, here), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(256 * KIB):
                self.bytes += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@dataclass
class Pair:
    """Two folders that something keeps the same."""

    name: str
    here: Path
    there: Path
    processes: list[int]
    wires: list[Counter] = field(default_factory=list["Counter"])
    """What counts its bytes; none: all on the loopback interface are taken for its own."""
    noticed_by: "Syncthing | None" = None

    def processor(self) -> float:
        """Seconds of processor time that its processes have taken, those of their children included."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(value) for value in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def wire(self) -> int:
        if not self.wires:
            return int(LOOPBACK_BYTES.read_text())
        return sum(wire.bytes for wire in self.wires)

    def peak(self) -> int:
        """Most resident bytes that one of its processes has had since ``_reset_peaks``."""
        statuses = (Path(f"/proc/{process}/status").read_text() for process in self.processes)
        return max(int(status.partition("VmHWM:")[2].split()[0]) * 1024 for status in statuses)

    def _reset_peaks(self) -> None:
        for process in self.processes:
            Path(f"/proc/{process}/clear_refs").write_text("5")

    def measured(
        self, files: Mapping[str, bytes | RandomBytes], *, settles: float = _SETTLES_SECONDS
    ) -> Figures:
        """Writes these files here, and waits until the other folder has them. Processor time and bytes include what is left to
        do afterwards."""
        # Beside the folder first: a large file that is seen half written would be sent half written as well.
        ready = self.here.with_name(f"{self.here.name}.ready")
        waiting: dict[str, tuple[int, bytes]] = {}
        for path, content in files.items():
            (ready / path).parent.mkdir(parents=True, exist_ok=True)
            (self.here / path).parent.mkdir(parents=True, exist_ok=True)
            waiting[path] = written(ready / path, content)
        self._reset_peaks()
        wire, processor = self.wire(), self.processor()
        started = time.perf_counter()
        for path in files:
            (ready / path).replace(self.here / path)
        if self.noticed_by is not None:
            self.noticed_by.scan()
        arrived = started
        while waiting:
            arrived = (
                time.perf_counter()
            )  # before the look at what may have arrived, which takes a while itself
            for path, (size, digest) in list(waiting.items()):
                if not has(self.there / path, size, digest):
                    break
                del waiting[path]
            if time.perf_counter() - started > ARRIVES_SECONDS_MAX:
                raise TimeoutError(f"{self.name}: {len(waiting)} files did not arrive")
            time.sleep(_POLL_SECONDS)
        time.sleep(settles)
        return Figures(arrived - started, self.processor() - processor, self.wire() - wire, self.peak())


@contextlib.contextmanager
def crystal_pair(folder: Path) -> Generator[Pair]:
    """A Node whose files go to its Core."""
    folder.mkdir()
    relay = DemoRelay(folder / "relay")
    relay.start()
    core, laptop = DemoDevice(folder / "core"), DemoDevice(folder / "laptop")
    watching: list[subprocess.Popen[bytes]] = []
    try:
        core.run("init", "--role", "core", "--relay", relay.url, "--yes", token=relay.token)
        code = str(core.run("pair", "--offline", "--yes")["code"])
        laptop.run("pair", "--code", "-", "--relay", relay.url, typed=code)
        for device in (laptop, core, laptop):
            device.run("sync")
        watching += [
            subprocess.Popen(
                [sys.executable, "-P", "-m", "crystal_node", "sync", "--watch"],
                env=device.environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for device in (core, laptop)
        ]
        processes = [relay.pid, *(process.pid for process in watching)]
        pair = Pair("Crystal", laptop.home, core.home, processes)
        pair.measured({"notes/first.md": b"the first file"})
        yield pair
    finally:
        for process in watching:
            process.send_signal(signal.SIGTERM)
        for process in watching:
            process.wait(60)
        relay.stop()


class Syncthing:
    """One process of it, without discovery, relays and uploads of its own."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home, self._folder = home, folder
        folder.mkdir(parents=True)
        subprocess.run(
            [str(shutil.which("syncthing")), "generate", "--home", str(home), "--no-default-folder"],
            check=True,
            capture_output=True,
        )
        self.port, gui = _free_port(), _free_port()
        tree = ET.parse(home / "config.xml")  # noqa: S314 (made by the line above)
        device = tree.find("device")
        key = tree.find("gui/apikey")
        assert device is not None and key is not None, "generated so"
        self.device = device.attrib["id"]
        self._key, self._api = str(key.text), f"http://127.0.0.1:{gui}"
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, other: "Syncthing", wire: int) -> None:
        """`wire`: the port at which the other one is reached."""
        (self._home / "config.xml").write_text(
            f"""<configuration version="35">
  <folder id="files" path="{self._folder}" type="sendreceive" rescanIntervalS="3600" fsWatcherEnabled="false">
    <device id="{self.device}"></device><device id="{other.device}"></device>
  </folder>
  <device id="{self.device}"><address>dynamic</address></device>
  <device id="{other.device}" compression="metadata"><address>tcp4://127.0.0.1:{wire}</address></device>
  <gui enabled="true"><address>{self._api.removeprefix("http://")}</address><apikey>{self._key}</apikey></gui>
  <options>
    <listenAddress>tcp4://127.0.0.1:{self.port}</listenAddress>
    <globalAnnounceEnabled>false</globalAnnounceEnabled><localAnnounceEnabled>false</localAnnounceEnabled>
    <relaysEnabled>false</relaysEnabled><natEnabled>false</natEnabled><urAccepted>-1</urAccepted>
    <crashReportingEnabled>false</crashReportingEnabled><startBrowser>false</startBrowser>
    <reconnectionIntervalS>1</reconnectionIntervalS><autoUpgradeIntervalH>0</autoUpgradeIntervalH>
  </options>
</configuration>"""
        )

    def start(self) -> None:
        self.process = subprocess.Popen(
            # Without a parent process that only watches over it.
            [
                str(shutil.which("syncthing")),
                "serve",
                "--home",
                str(self._home),
                "--no-browser",
                "--no-restart",
            ],
            env=os.environ | {"STMONITORED": "yes", "STNOUPGRADE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def scan(self) -> None:
        self._ask("/rest/db/scan?folder=files", post=True)

    def is_connected(self) -> bool:
        try:
            found = json.loads(self._ask("/rest/system/connections"))["connections"]
        except OSError:
            return False
        return any(one["connected"] for one in found.values())

    def _ask(self, path: str, *, post: bool = False) -> bytes:
        request = urllib.request.Request(  # noqa: S310 (loopback)
            self._api + path, headers={"X-API-Key": self._key}, method="POST" if post else "GET"
        )
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
            return bytes(reply.read())


@contextlib.contextmanager
def syncthing_pair(folder: Path, *, counted: bool = False) -> Generator[Pair]:
    """Two of them that know each other. `counted`: their bytes are counted by a process between them."""
    one = Syncthing(folder / "one", folder / "here")
    other = Syncthing(folder / "other", folder / "there")
    wires = [Counter(other.port)] if counted else []
    one.configure(other, wires[0].port if wires else other.port)
    other.configure(one, _free_port())
    try:
        other.start()
        one.start()
        deadline = time.monotonic() + 60
        while not one.is_connected():
            if time.monotonic() > deadline:
                raise TimeoutError("Syncthing does not connect")
            time.sleep(0.1)
        assert one.process is not None and other.process is not None, "started"
        processes = [one.process.pid, other.process.pid]
        pair = Pair("Syncthing", folder / "here", folder / "there", processes, wires, noticed_by=one)
        pair.measured({"notes/first.md": b"the first file"})
        yield pair
    finally:
        one.stop()
        other.stop()
        for wire in wires:
            wire.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _steps(pair: Moving, *, files: int, large: int, scale: bool) -> dict[str, Figures]:
    rng = random.Random(7)
    words = ["tide", "gauge", "harbour", "sensor", "nine", "seven", "report", "calibrated", "north", "buoy"]

    def text(size: int) -> bytes:
        return " ".join(rng.choice(words) + str(rng.randrange(1000)) for _ in range(size // 8)).encode()[
            :size
        ]

    small = {
        f"notes/{number // 100}/note-{number}.md": text(rng.randrange(SMALL_BYTES // 2, SMALL_BYTES * 3 // 2))
        for number in range(files)
    }
    found = {"small": pair.measured(small)}
    one = [pair.measured({f"notes/one-{number}.zst": rng.randbytes(10 * KIB)}) for number in range(3)]
    found["one"] = sorted(one, key=lambda figures: figures.seconds)[1]
    whole = rng.randbytes(large)
    found["large"] = pair.measured({"large.bin": whole})
    at = large // 2
    changed = whole[:at] + rng.randbytes(KIB) + whole[at + KIB :]
    found["changed"] = pair.measured({"large.bin": changed})
    assert (
        hashlib.sha256((pair.there / "large.bin").read_bytes()).digest() == hashlib.sha256(changed).digest()
    )
    if scale:
        many = {
            f"many/{number // 100}/note-{number}.md": text(
                rng.randrange(SMALL_BYTES // 2, SMALL_BYTES * 3 // 2)
            )
            for number in range(MANY_FILES)
        }
        found["many"] = pair.measured(many)
        found["huge"] = pair.measured({"huge.bin": RandomBytes(HUGE_BYTES, 7)})
    return found


def rows(folder: Path, *, quick: bool) -> list[Row]:
    """The figures of both, or of Crystal alone where there is no Syncthing."""
    files, large = (100, 8 * MIB) if quick else (SMALL_FILES, LARGE_BYTES)
    with crystal_pair(folder / "crystal") as pair:
        ours = _steps(pair, files=files, large=large, scale=not quick)
    theirs: dict[str, Figures] = {}
    if shutil.which("syncthing"):
        with syncthing_pair(folder / "syncthing") as pair:
            theirs = _steps(pair, files=files, large=large, scale=not quick)
    with folder_pairs(folder / "between") as pairs:
        by_hand = {pair.name: _steps(pair, files=files, large=large, scale=False) for pair in pairs}
    what = {
        "small": f"{files:,} small files",
        "one": "one new file of 10 KiB",
        "large": f"a file of {large / 1e6:.0f} MB",
        "changed": "1 KiB changed in it",
        "many": f"{MANY_FILES:,} files at once",
        "huge": f"a file of {HUGE_BYTES / 1e9:.0f} GB",
    }
    made: list[Row] = []
    for step, mine in ours.items():
        name, other = what[step], theirs.get(step)
        target = ratio_at_most(1.5) if other is not None and step in ("small", "large") else None
        made += [
            Row(
                name=f"{name}: until on the other device",
                value=mine.seconds,
                unit="s",
                baseline="Syncthing" if other else "",
                baseline_value=other.seconds if other else None,
                target=value_at_most(2.0) if step == "one" else target,
            ),
            Row(
                name=f"{name}: processor time of relay and both devices",
                value=mine.processor,
                unit="s",
                baseline="Syncthing" if other else "",
                baseline_value=other.processor if other else None,
                target=target if step == "small" else None,
            ),
            Row(
                name=f"{name}: bytes a hop",
                value=mine.wire / 2 / 1000,
                unit="kB",
                baseline="Syncthing" if other else "",
                baseline_value=other.wire / 1000 if other else None,
                target=value_at_most(300) if step == "changed" else None,
                note="between a device and the relay, the mean of both; everything within eight seconds after it is counted",
            ),
        ]
        for tool, found in by_hand.items():
            if step in found and step != "one":
                made += [
                    Row(
                        name=f"{name}: the same, {quantity}",
                        value=mine_value,
                        unit="s",
                        baseline=tool,
                        baseline_value=their_value,
                    )
                    for quantity, mine_value, their_value in (
                        ("until on the other device", mine.seconds, found[step].seconds),
                        ("processor time", mine.processor, found[step].processor),
                    )
                ]
        if step in ("many", "huge"):
            made.append(
                Row(
                    name=f"{name}: peak of resident memory",
                    value=mine.peak / 1e6,
                    unit="MB",
                    baseline="Syncthing" if other else "",
                    baseline_value=other.peak / 1e6 if other else None,
                    note="of the relay and both devices, the one that held most",
                )
            )
    return made

"""A network of namespaces: every device has its own, with real TCP over packets that this process carries.

    with namespaces(random) as network:
        relay = RelayProcess(..., prefix=network.relay.prefix)
        laptop = network.join("laptop")           # laptop.prefix comes before each of its commands
        laptop.weather = Weather(loss=0.1, delay=0.1, jitter=0.05, doubled=0.02)

Each namespace has one TUN device, whose other end is a file descriptor here. What a kernel sends is read from one and
written to another, later, twice, or never: what `tc netem` does, on kernels that have no netem too.
"""

import contextlib
import heapq
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random

from tests.support.networks.ends import MTU
from tests.support.networks.weather import CALM, Weather

_NET = "10.77.0"
_START_SECONDS_MAX = 20.0


@dataclass(eq=False)
class End:
    """A namespace. Packets between it and the relay's have its weather."""

    address: str
    pid: int
    device: int
    weather: Weather = CALM
    free_at: float = 0.0
    """When a line of limited speed has carried what it was given."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """Comes before a command that is to run in it."""
        return ("nsenter", "--preserve-credentials", "--user", "--net", "--target", str(self.pid))


@dataclass
class Counted:
    """Packets."""

    carried: int = 0
    lost: int = 0
    doubled: int = 0
    stopped: int = 0


@dataclass
class Network:
    """The namespaces, and who carries between them."""

    random: Random
    counted: Counted = field(default_factory=Counted)
    _ends: dict[bytes, End] = field(default_factory=dict[bytes, End])
    _holders: list["subprocess.Popen[bytes]"] = field(default_factory=list["subprocess.Popen[bytes]"])
    _under_way: list[tuple[float, int, int, bytes]] = field(
        default_factory=list[tuple[float, int, int, bytes]]
    )
    _number: int = 0
    _ending: threading.Event = field(default_factory=threading.Event)

    @property
    def relay(self) -> End:
        """The first to have joined."""
        return next(iter(self._ends.values()))

    def join(self) -> End:
        """One more namespace. Raises OSError with what is missing."""
        address = f"{_NET}.{len(self._ends) + 1}"
        here, there = socket.socketpair()
        with here, there:
            holder = subprocess.Popen(
                [
                    *("unshare", "--user", "--map-root-user", "--net", sys.executable),
                    *("-m", "tests.support.networks.ends", str(there.fileno()), address),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[there.fileno()],
            )
            self._holders.append(holder)
            there.close()
            here.settimeout(_START_SECONDS_MAX)
            _, descriptors, _, _ = socket.recv_fds(here, 16, 1)
        if not descriptors:
            assert holder.stderr is not None
            said = holder.stderr.read().decode(errors="replace").strip().splitlines()
            raise OSError(said[-1] if said else "no namespace could be made")
        os.set_blocking(descriptors[0], False)
        end = End(address, holder.pid, descriptors[0])
        self._ends[socket.inet_aton(address)] = end
        return end

    def carry(self) -> None:
        """For the network's own thread."""
        while not self._ending.is_set():
            now = time.monotonic()
            while self._under_way and self._under_way[0][0] <= now:
                _, _, device, packet = heapq.heappop(self._under_way)
                with contextlib.suppress(OSError):  # a queue that is full drops, as any router's does
                    os.write(device, packet)
            until = self._under_way[0][0] - now if self._under_way else 0.05
            ready, _, _ = select.select(
                [end.device for end in self._ends.values()], [], [], min(max(until, 0.0), 0.05)
            )
            for device in ready:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self._send(os.read(device, MTU + 64))

    def _send(self, packet: bytes) -> None:
        source, target = self._ends.get(packet[12:16]), self._ends.get(packet[16:20])
        if packet[0] >> 4 != 4 or source is None or target is None:
            return
        to_relay = target is self.relay
        line = source if to_relay else target
        weather = line.weather
        if not (weather.to_relay if to_relay else weather.from_relay):
            self.counted.stopped += 1
            return
        if self.random.random() < weather.loss:
            self.counted.lost += 1
            return
        at = time.monotonic()
        if weather.bytes_per_second:
            at = line.free_at = max(at, line.free_at) + len(packet) / weather.bytes_per_second
        copies = 2 if self.random.random() < weather.doubled else 1
        self.counted.doubled += copies - 1
        for _ in range(copies):
            self._number += 1
            due = at + weather.delay + self.random.uniform(0.0, weather.jitter)
            heapq.heappush(self._under_way, (due, self._number, target.device, packet))
        self.counted.carried += 1

    def end(self) -> None:
        """No packet is carried any more, and the namespaces go once nothing runs in them."""
        self._ending.set()
        for holder in self._holders:
            holder.communicate()
        for end in self._ends.values():
            os.close(end.device)


def missing() -> str:
    """What keeps this machine from having such a network, "" if nothing does."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    for program in ("unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed (util-linux)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened"
    network = Network(Random(0))
    try:
        network.join()
    except OSError as error:
        return f"a network namespace cannot be made here: {error}"
    finally:
        network.end()
    return ""


@contextlib.contextmanager
def namespaces(random: Random) -> Generator[Network]:
    """A network with the relay's namespace in it; more `join`."""
    network = Network(random)
    try:
        network.join()
        thread = threading.Thread(target=network.carry, name="network", daemon=True)
        thread.start()
        try:
            yield network
        finally:
            network._ending.set()  # pyright: ignore[reportPrivateUsage]
            thread.join()
    finally:
        network.end()

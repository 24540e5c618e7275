"""Two hosts with a router between them: network namespaces, wires and routes of the kernel's own.

    with routed() as network:
        Machine(root, prefix=network.hosts[0].prefix)
        RelayProcess(..., prefix=network.router.prefix)

    host 10.81.1.2 ──── 10.81.1.1 router 10.81.2.1 ──── 10.81.2.2 host

No host is in another's network, and each one's loopback is its own: whoever reaches the other was routed. The rest of the world
would be behind the first host.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass

_NET = "10.81"
_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Host:
    """A namespace and its address. The router's is the one towards the first host."""

    namespace: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """Comes before a command that is to run in it."""
        return ("nsenter", f"--net=/run/netns/{self.namespace}")


@dataclass(frozen=True)
class RoutedNetwork:
    """The router, and the two hosts on either side of it."""

    router: Host
    hosts: tuple[Host, Host]


def missing() -> str:
    """What keeps this machine from having such a network, "" if nothing does."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may connect network namespaces"
    for program in ("ip", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        with routed() as network:
            _do(*network.hosts[0].prefix, "ip", "route", "get", network.hosts[1].address)
    except OSError as error:
        return f"namespaces cannot be connected here: {error}"
    return ""


@contextlib.contextmanager
def routed() -> Generator[RoutedNetwork]:
    """The network, gone at the end. Raises OSError with what is missing."""
    mark = f"cr{os.getpid()}"
    router = Host(f"{mark}r", f"{_NET}.1.1")
    hosts = (Host(f"{mark}a", f"{_NET}.1.2"), Host(f"{mark}b", f"{_NET}.2.2"))
    with contextlib.ExitStack() as stack:
        for host in (router, *hosts):
            _do("ip", "netns", "add", host.namespace)
            stack.callback(_do, "ip", "netns", "del", host.namespace)
            _do("ip", "-n", host.namespace, "link", "set", "lo", "up")
        for number, host in enumerate(hosts, 1):
            here, there = f"{mark}h{number}", f"{mark}w{number}"
            _do("ip", "link", "add", here, "type", "veth", "peer", "name", there)
            _connect(host.namespace, here, host.address)
            _connect(router.namespace, there, f"{_NET}.{number}.1")
            _do("ip", "-n", host.namespace, "route", "add", "default", "via", f"{_NET}.{number}.1")
        _do("ip", "-n", router.namespace, "route", "add", "default", "via", hosts[0].address)
        forward = "import pathlib; pathlib.Path('/proc/sys/net/ipv4/ip_forward').write_text('1')"
        _do(*router.prefix, sys.executable, "-c", forward)
        yield RoutedNetwork(router, hosts)


def _connect(namespace: str, link: str, address: str) -> None:
    _do("ip", "link", "set", link, "netns", namespace)
    _do("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", link)
    _do("ip", "-n", namespace, "link", "set", link, "up")


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command[:4])}: {done.stderr.strip()[-300:]}")

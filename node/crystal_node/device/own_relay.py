"""The relay in this home, for other machines: its certificate, its address, and serving it.

The address that an invite carries names the machine, the port and the certificate's fingerprint: ``https://192.168.1.20:18791#pin=…``.
So no name, no authority and no trust in the network is needed, and nobody who listens learns a token.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from crystal_node.base.errors import LocalStorage, NotSetUp, UsageError
from crystal_node.base.home import DIRECTORY_MODE, Home, write_private
from crystal_node.base.settings import Settings
from crystal_relay.address import pinned
from crystal_relay.errors import InUse, RelayError

RELAY_PORT = 18791
_CERTIFICATE = "tls.pem"
_HELD_SECONDS = 0.2
_FAILED_SECONDS = 30.0
_ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))
"""Addresses for documentation (RFC 5737, RFC 3849): the route to them tells this machine's own address. Nothing is sent."""
_DISCARD_PORT = 9


def certificate_file(home: Home) -> Path:
    """The key and the certificate of the relay in this home (PEM, 0600), made if they are missing. Raises LocalStorage."""
    file = home.relay / _CERTIFICATE
    if not file.exists():
        home.relay.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        from crystal_crypto.certificate import new_certificate

        made = file.with_name(f"{_CERTIFICATE}.{os.getpid()}")
        write_private(made, new_certificate())
        try:
            with suppress(FileExistsError):
                os.link(made, file)  # of two processes that make one, both take the first
        finally:
            made.unlink()
    return file


def shared_url(settings: Settings) -> str:
    """The relay's address for other machines: of this home's own one, with the fingerprint of its certificate.

    Raises:
        NotSetUp: the relay in this home is for this machine alone, or this machine has no address.
    """
    if not settings.relay_is_local:
        return settings.relay_url
    if not settings.service.own_relay_port:
        raise NotSetUp(
            "the relay of this vault is in this home, where no other machine reaches it",
            hint="`crystal pair` opens it to other machines, or moves the vault to a relay that both reach.",
        )
    host = settings.service.own_relay_host or own_address()
    shown = f"[{host}]" if ":" in host else host
    certificate = ssl.PEM_cert_to_DER_cert(_certificate_in(certificate_file(settings.home)))
    return pinned(f"https://{shown}:{settings.service.own_relay_port}", certificate)


def check_port(port: int) -> None:
    """Raises UsageError if another program has the port that the relay in this home is to use."""
    dual = socket.has_dualstack_ipv6()
    every, family = ("::", socket.AF_INET6) if dual else ("0.0.0.0", socket.AF_INET)  # noqa: S104  as it is going to be served
    try:
        socket.create_server((every, port), family=family, dualstack_ipv6=dual).close()
    except OSError as error:
        why = "it is taken" if error.errno == errno.EADDRINUSE else error.strerror
        raise UsageError(
            f"this machine's relay cannot have port {port}: {why}",
            hint="Choose another one, and run this again: crystal config set own_relay_port N",
        ) from error


def own_address() -> str:
    """This machine's address on its default route. Sends nothing. Raises NotSetUp."""
    for remote, family in _ELSEWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((remote, _DISCARD_PORT))
            return str(probe.getsockname()[0])
    raise NotSetUp(
        "this machine has no network, so no other machine can reach it",
        hint="Connect it, or set its name in the network: crystal config set own_relay_host NAME.",
    )


_served: set[Path] = set()
"""Directories that `on_network` serves in this process, or is about to."""


def is_served_here(directory: Path) -> bool:
    """Whether `on_network` serves a relay's directory in this process, so that nothing else in it may."""
    return directory in _served


@asynccontextmanager
async def on_network(settings: Settings, tell: Callable[[str], None]) -> AsyncGenerator[None]:
    """Lets other machines reach the relay in this home meanwhile, if that is wanted. ``tell``: what went wrong."""
    directory = settings.home.relay
    if not settings.relay_is_local or not settings.service.own_relay_port:
        yield
        return
    _served.add(directory)
    serving = asyncio.create_task(_serve(settings, tell))
    try:
        yield
    finally:
        _served.discard(directory)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def _serve(settings: Settings, tell: Callable[[str], None]) -> None:
    """Serves as soon as nobody else does, first this machine and then others. A port that is taken is tried again."""
    from crystal_relay.embedded.relay import EmbeddedRelay, NetworkDoor

    relay: EmbeddedRelay | None = None
    while relay is None:
        try:
            relay = await EmbeddedRelay.open(settings.home.relay)
        except InUse:  # by a command, for moments; or by the background service, all the time
            await asyncio.sleep(_HELD_SECONDS)
        except RelayError as error:
            tell(f"the relay in this home cannot be opened: {error}")
            await asyncio.sleep(_FAILED_SECONDS)
    told = ""
    try:
        while True:
            try:
                every = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104  other machines shall reach it
                door = NetworkDoor(every, settings.service.own_relay_port, certificate_file(settings.home))
                await relay.open_to_network(door)
                await asyncio.Event().wait()
            except (RelayError, OSError) as error:
                if str(error) != told:
                    told = str(error)
                    tell(f"other machines cannot reach the relay here: {told}")
                await asyncio.sleep(_FAILED_SECONDS)
    finally:
        await relay.aclose()


def _certificate_in(file: Path) -> str:
    text = file.read_text(encoding="ascii", errors="replace")
    begin = text.find("-----BEGIN CERTIFICATE-----")
    if begin < 0:
        raise LocalStorage(
            f"{file} holds no certificate", hint="Delete that file, and pair the other machines again."
        )
    return text[begin:]

"""Where other machines reach a relay, and the certificate that it shows them."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from crystal_relay.errors import BadRequest, Unusable

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104
"""Hosts that stand for all addresses of this machine."""
_ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))
"""Addresses for documentation (RFC 5737, RFC 3849): the route to them shows this machine's own address. Nothing is sent."""
_DISCARD_PORT = 9
_MAKING_SECONDS_MAX = 60.0


def every_address() -> str:
    """The host to listen on for all addresses of this machine, of both kinds where the system can."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104


def reached_host(host: str, given: str | None) -> str:
    """The host by which other machines reach what listens on this one: the given one, or this machine's own address.

    Raises BadRequest: this machine has no network.
    """
    if given:
        return given
    if host not in EVERYWHERE:
        return host
    for remote, family in _ELSEWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((remote, _DISCARD_PORT))
            return str(probe.getsockname()[0])
    raise BadRequest(
        "this machine has no address that other machines can reach",
        hint="Connect it to a network, or name one: --address relay.home.example",
    )


def certificate_file(directory: Path) -> Path:
    """The key and the certificate of the relay in a directory (PEM, 0600), made if they are missing. Raises Unusable.

    Another process makes them: the relay loads no cipher, so that it cannot look into what it keeps.
    """
    from crystal_relay.server.tls import CERTIFICATE_FILE

    file = directory / CERTIFICATE_FILE
    if file.exists():
        return file
    made = subprocess.run(
        [sys.executable, "-P", "-m", "crystal_crypto.certificate"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_MAKING_SECONDS_MAX,
        check=False,
    )
    if made.returncode:
        raise Unusable(
            "no certificate could be made", hint="Install the relay again: a part of it is missing."
        )
    temporary = file.with_name(f"{CERTIFICATE_FILE}.{os.getpid()}")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as written:
            written.write(made.stdout)
            written.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(temporary, file)  # if two processes make one, both use the first
    except OSError as error:
        raise Unusable(
            f"{file} cannot be written ({error.strerror})", hint="Choose another --store."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return file

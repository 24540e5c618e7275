"""`crystal-relay up` and `down`: install the relay as a service that other machines reach, and remove it.

A failed `up` changes nothing: a service that was there runs on as it was, a new one is removed, and its token revoked.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from crystal_relay.address import check_relay_url
from crystal_relay.cli.failures import told
from crystal_relay.cli.operations import operate
from crystal_relay.cli.options import AsJson, StoreAddress
from crystal_relay.cli.output import show_json, tell
from crystal_relay.cli.reached import EVERYWHERE, certificate_file, every_address, reached_host
from crystal_relay.cli.serve import PORT
from crystal_relay.cli.service import Installed, NoServiceManager, RelayProgram, RelayService, service_manager
from crystal_relay.cli.stores import StorePlace
from crystal_relay.errors import BadRequest, RelayError, StoreUnavailable

LABEL = "crystal-relay up"
"""Label of the enrolment token that it makes."""
ANSWERS_SECONDS_MAX = 60.0
STOPPED_LOOKS_MAX = 10
"""How often in a row a relay that was started is found stopped before that counts."""
_LOOK_SECONDS = 0.5
LOW_PORT_MAX = 1023

_ABOUT = """\
The relay runs at
  {url}
It listens on port {port} of {where}, over TLS 1.3 with the certificate that the address names. {service}

On the machine where your memory begins:
  crystal up --relay '{url}' --enroll-token -
On a machine that has a memory already:
  crystal pair --relay '{url}' --enroll-token -
"""
_ENROLS = """\
The enrolment token that it reads, shown only once:
  {token}
"""
_SHOWN_BEFORE = (
    "The first `crystal-relay up` showed its enrolment token; `crystal-relay tokens create` makes another."
)


def up(
    store: StoreAddress = None,
    host: Annotated[
        str | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_HOST", help="The address to listen on.", show_default="all of this machine"
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, envvar="CRYSTAL_RELAY_PORT", help="The port.")
    ] = PORT,
    address: Annotated[
        str | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_ADDRESS",
            help="How other machines reach it: a name or an address.",
            show_default="this machine's address",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install the relay as a service that other machines reach.

    Prints the address with the certificate's fingerprint, an enrolment token, and the line for the other machine. The store
    is a directory. Run it again to change an option; the relay restarts. `crystal-relay down` removes the service.
    """
    with told(as_json=as_json):
        from crystal_relay.server.tls import pinned_url

        place = StorePlace.of_options(store, None, False)
        if place.directory is None:
            raise BadRequest(
                "a relay with a certificate of its own keeps its objects in a directory",
                hint="Use --store file:///directory. For a bucket, run `crystal-relay serve` behind a proxy with TLS.",
            )
        directory = place.directory
        listens = host or every_address()
        shown = reached_host(listens, address)
        manager = service_manager()
        before = manager.installed()
        # Its own relay may have the port now; the address is tried all the same.
        keeps_port = before is not None and before.runs and before.port == port
        _check_free(listens, 0 if keeps_port else port)
        asyncio.run(_made(directory))
        certificate = certificate_file(directory)
        url = check_relay_url(pinned_url(shown, port, certificate))
        here = pinned_url("127.0.0.1" if listens in EVERYWHERE else listens, port, certificate)
        token = _new_token(place)
        command = (sys.executable, "-P", "-m", "crystal_relay", "serve", "--tls", "--host", listens)
        program = RelayProgram(
            # One's own relay: the disk is the limit.
            (
                *command,
                "--port",
                str(port),
                "--store",
                directory.as_uri(),
                "--address",
                shown,
                "--quota-bytes",
                "0",
            ),
            directory,
            low_port=port <= LOW_PORT_MAX,
        )
        try:
            service = manager.install(program)
            asyncio.run(_until_answered(here, manager))
        except BaseException as error:
            try:
                _undo(manager, before, error)
            finally:
                if token is not None:
                    _revoke(place, token[1])
            raise
        if as_json:
            show_json(
                {
                    "url": url,
                    "enroll_token": None if token is None else token[0],
                    "manager": manager.name,
                    "file": None if manager.file is None else str(manager.file),
                    "store": str(directory),
                }
            )
        else:
            where = "all addresses of this machine" if host is None else listens
            print(_ABOUT.format(url=url, port=port, where=where, service=service), flush=True)
            print(_SHOWN_BEFORE if token is None else _ENROLS.format(token=token[0]), flush=True)
        if url != here:
            asyncio.run(_try_from_here(url, port))


def down(as_json: AsJson = False) -> None:
    """Stop the relay and remove its service; keep its data.

    Undoes `crystal-relay up`. The next one serves the same vaults under the same address.
    """
    with told(as_json=as_json):
        manager = service_manager()
        was_there = manager.installed() is not None
        manager.uninstall()
        if as_json:
            show_json({"removed": was_there, "manager": manager.name})
        elif was_there:
            print(
                "The relay is stopped and will not start again. Its data stays; `crystal-relay up` starts it again."
            )
        else:
            tell("No service of `crystal-relay up` is installed.")


def _check_free(host: str, port: int) -> None:
    """Raises PortTaken, CannotListen: before anything is installed."""
    from crystal_relay.server.serving import listen

    listen(host, port).close()


async def _made(directory: Path) -> None:
    """Make the store if there is none. Raises Unusable, InUse."""
    if not (directory / "objects.db").exists():
        from crystal_relay.local import LocalStore

        await (await asyncio.to_thread(LocalStore, directory)).aclose()


def _new_token(place: StorePlace) -> tuple[str, str] | None:
    """A token and its id; None if an earlier `up` made and showed one."""
    from crystal_relay.server.enrollment import enrollment_hash, new_enrollment_token

    found = operate(place, lambda operations: operations.enrollments())
    if any(each.label == LABEL for each in found):
        return None
    token = new_enrollment_token()
    made = operate(place, lambda operations: operations.enroll(enrollment_hash(token), LABEL))
    return token, made.id


def _revoke(place: StorePlace, name: str) -> None:
    try:
        operate(place, lambda operations: operations.revoke_enrollment(name))
    except RelayError as error:
        tell(
            f"The enrolment token {name} could not be revoked ({error}): `crystal-relay tokens revoke {name}`."
        )


def _undo(manager: RelayService, before: Installed | None, error: BaseException) -> None:
    """Make the service what it was. Raises NoServiceManager: it cannot be."""
    if before is None:
        manager.uninstall()
        return
    try:
        manager.restore(before)
    except (NoServiceManager, OSError) as second:
        raise NoServiceManager(
            f"{error}; and the relay that was there before could not be started again: {second}",
            hint="Run `crystal-relay up` again with the options that it had.",
        ) from error


async def _answer_at(url: str) -> Exception | None:
    """Ask the relay at an address whether it is there. Returns what went wrong."""
    import httpx

    from crystal_relay.address import http_client

    async with http_client(url, connect=2, idle=5, connections_kept=1) as http:
        try:
            await http.get("/health")
        except httpx.HTTPError as error:
            return error
    return None


async def _until_answered(url: str, manager: RelayService) -> None:
    """Wait until the relay answers where it listens. Raises NoServiceManager, StoreUnavailable."""
    deadline = time.monotonic() + ANSWERS_SECONDS_MAX
    stopped = 0
    while await _answer_at(url) is not None:
        stopped = 0 if manager.is_running() else stopped + 1
        if stopped == STOPPED_LOOKS_MAX:
            raise NoServiceManager(
                "the relay was started but does not run",
                hint="`journalctl --user -u crystal-relay` says why (as root without --user).",
            )
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"the relay runs but does not answer at {url.partition('#')[0]}",
                hint="`journalctl --user -u crystal-relay` says why (as root without --user).",
            )
        await asyncio.sleep(_LOOK_SECONDS)


async def _try_from_here(url: str, port: int) -> None:
    """Warn if the relay's address does not lead to it from this machine, which need not be a fault."""
    from crystal_relay.address import is_wrong_certificate

    problem = await _answer_at(url)
    if problem is None:
        return
    plain = url.partition("#")[0]
    tell(
        f"Another server than this relay answers at {plain}, seen from this machine."
        if is_wrong_certificate(problem)
        else f"The relay runs, and does not answer at {plain}, seen from this machine. Behind a router that can be so although "
        "other machines reach it."
    )
    tell(
        f"  If they do not: does the name lead here, does the router forward port {port} to this machine, and does its "
        "firewall let it in?"
    )

"""`crystal-relay serve`: composes store, application and server, and runs them until it is told to stop."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crystal_relay.cli.failures import told
from crystal_relay.cli.options import StoreAddress
from crystal_relay.cli.settings import ENROLL_VARIABLE, enroll_token_of_environment
from crystal_relay.cli.stores import default_store, open_store
from crystal_relay.errors import BadRequest

if TYPE_CHECKING:
    from crystal_relay.server import Settings

PORT = 18791


def serve(
    host: Annotated[
        str, typer.Option(envvar="CRYSTAL_RELAY_HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, envvar="CRYSTAL_RELAY_PORT", help="The port; 0 takes a free one."),
    ] = PORT,
    store: StoreAddress = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write the address here, as JSON, once connections are accepted.")
    ] = None,
    quota_bytes: Annotated[
        int,
        typer.Option(min=0, envvar="CRYSTAL_RELAY_QUOTA_BYTES", help="Bytes that a vault may have; 0: any."),
    ] = 64 * 1024**3,
    quota_entries: Annotated[
        int,
        typer.Option(
            min=0, envvar="CRYSTAL_RELAY_QUOTA_ENTRIES", help="Objects that a vault may have; 0: any."
        ),
    ] = 4_000_000,
    rate_per_token: Annotated[
        float,
        typer.Option(
            min=0, envvar="CRYSTAL_RELAY_RATE_PER_TOKEN", help="Requests a second of a device; 0: any."
        ),
    ] = 500.0,
    rate_per_address: Annotated[
        float,
        typer.Option(
            min=0, envvar="CRYSTAL_RELAY_RATE_PER_ADDRESS", help="Requests a second of an address; 0: any."
        ),
    ] = 1_000.0,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_TRUSTED_PROXY",
            metavar="CIDR",
            help="A proxy whose X-Forwarded-For is believed: an address or a network. May come several times.",
            show_default="none",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say the address, and errors, as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log each request to stderr.")] = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Prints the address on stdout once it accepts connections. Creating a vault needs the enrolment token: the one in the
    environment variable CRYSTAL_RELAY_ENROLL_TOKEN, else one that is printed on stderr at the first start.
    """
    _start_log(verbose=verbose)
    with told(as_json=as_json):
        from crystal_relay.server import Settings
        from crystal_relay.server.settings import network_of

        settings = Settings(
            enroll_token=enroll_token_of_environment(),
            quota_bytes=quota_bytes,
            quota_entries=quota_entries,
            rate_per_token=rate_per_token,
            rate_per_address=rate_per_address,
            trusted_proxies=tuple(network_of(each) for each in trusted_proxy or ()),
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(host, port, store or default_store(), settings, ready_file, as_json=as_json))


async def _run(
    host: str, port: int, address: str, settings: "Settings", ready_file: Path | None, *, as_json: bool
) -> None:
    """The composition: everything that a relay process is made of is made here, and closed in the reverse order."""
    from crystal_relay.server import create_app
    from crystal_relay.server.authorization import ensure_enrollment
    from crystal_relay.server.serving import Server, listen

    listener = listen(host, port)
    try:
        store = await open_store(address)
    except BaseException:
        listener.close()
        raise
    try:
        application = create_app(store, settings)
        if settings.enroll_token is None:
            await ensure_enrollment(application.state.relay.registry, _announce_enrollment)
        server = Server(application, listener)

        def ready() -> None:
            text = json.dumps({"url": server.url, "pid": os.getpid()})
            if ready_file is not None:
                _write_whole(ready_file, text)
            print(text if as_json else server.url, flush=True)

        await server.serve(ready=ready, signals=True)
    finally:
        listener.close()
        await store.aclose()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop
    except ImportError:  # not on every system; slower without
        return asyncio.new_event_loop
    return new_event_loop


def _start_log(*, verbose: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    if not verbose:
        # Else every stranger's port scan would be a line in the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def _announce_enrollment(token: str) -> None:
    print(
        "This relay's enrolment token, shown this once (only its hash is kept). `crystal init` needs it:\n"
        f"  {token}\n"
        f"Lost it? Start the relay with {ENROLL_VARIABLE} set to one of your own.",
        file=sys.stderr,
        flush=True,
    )


def _write_whole(path: Path, text: str) -> None:
    """Whoever polls for the file never sees a part of it."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text + "\n")
        temporary.replace(path)
    except OSError as error:
        raise BadRequest(
            f"{path}: cannot be written ({error.strerror})", hint="Choose another --ready-file."
        ) from None

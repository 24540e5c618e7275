"""`crystal-relay serve`: compose store, application and server, and run them until stopped.

The server's modules are imported when the command runs, so that other commands start quickly.
"""

import asyncio
import gc
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from crystal_relay.address import check_relay_url
from crystal_relay.cli.failures import told
from crystal_relay.cli.options import ENROLL_VARIABLE, METRICS_VARIABLE, S3AllowHttp, S3Endpoint, StoreAddress
from crystal_relay.cli.reached import certificate_file, reached_host
from crystal_relay.cli.stores import StorePlace, open_store
from crystal_relay.errors import BadRequest
from crystal_relay.extra import require
from crystal_relay.limits import UNUSED_DAYS_MIN

if TYPE_CHECKING:
    from crystal_relay.server import RelaySettings

PORT = 18791
SWITCH_SECONDS = 0.0005
"""Thread switch interval. The store's threads hand each result to the event loop; with Python's default of five milliseconds a
commit waits longer for the loop than for the disk."""
GARBAGE_OBJECTS = 20_000
"""Net new objects after which Python looks for reference cycles, instead of 700. Requests leave no cycles behind, but each has
dozens of objects while it waits for the disk: the search took a fifteenth of the processor time of writing."""
_FILE_CHARS_MAX = 1024
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
_WILDCARDS = {"0.0.0.0": (socket.AF_INET, "192.0.2.1"), "::": (socket.AF_INET6, "2001:db8::1")}  # noqa: S104
"""Wildcard hosts, each with a documentation address to find the local address that a route to it would use."""
_DISCARD_PORT = 9


def serve(
    host: Annotated[
        str, typer.Option(envvar="CRYSTAL_RELAY_HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, envvar="CRYSTAL_RELAY_PORT", help="The port; 0 takes a free one."),
    ] = PORT,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            envvar="CRYSTAL_RELAY_TLS",
            help="Serve over TLS 1.3 with a certificate that the address names.",
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_ADDRESS",
            help="For --tls: how other machines reach it.",
            show_default="this machine's address",
        ),
    ] = None,
    store: StoreAddress = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_READY_FILE",
            help="Write the address here, as JSON, once connections are accepted.",
        ),
    ] = None,
    quota_bytes: Annotated[
        int,
        typer.Option(
            min=0, envvar="CRYSTAL_RELAY_QUOTA_BYTES", help="Bytes that a vault may store; 0 for no limit."
        ),
    ] = 8 * 1024**3,
    quota_entries: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_QUOTA_ENTRIES",
            help="Objects that a vault may store; 0 for no limit.",
        ),
    ] = 4_000_000,
    cap_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_CAP_BYTES",
            help="Bytes that all vaults together may store; 0 for no limit.",
        ),
    ] = 0,
    foundings_per_hour: Annotated[
        float,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_FOUNDINGS_PER_HOUR",
            help="New vaults an hour of a token, and of an address; 0 for no limit.",
        ),
    ] = 60.0,
    rate_per_token: Annotated[
        float,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_RATE_PER_TOKEN",
            help="Requests per second of a device; 0 for no limit.",
        ),
    ] = 500.0,
    rate_per_address: Annotated[
        float,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_RATE_PER_ADDRESS",
            help="Requests per second of an address; 0 for no limit.",
        ),
    ] = 1_000.0,
    deletion_days: Annotated[
        int,
        typer.Option(
            min=1,
            max=90,
            envvar="CRYSTAL_RELAY_DELETION_DAYS",
            help="Days that an owner's deletion of a vault waits at least.",
        ),
    ] = 1,
    expire_unused_days: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_EXPIRE_UNUSED_DAYS",
            help="Close vaults that nobody used for so many days, 90 at least; 0 for never.",
        ),
    ] = 0,
    store_concurrency: Annotated[
        int | None,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_STORE_CONCURRENCY",
            help="Store operations at once, of all vaults; 0 for no limit.",
            show_default="16 on a bucket, 64 on a directory",
        ),
    ] = None,
    vault_concurrency: Annotated[
        int | None,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_VAULT_CONCURRENCY",
            help="Store operations at once, of one vault; 0 for no limit.",
            show_default="half of --store-concurrency",
        ),
    ] = None,
    connections: Annotated[
        int,
        typer.Option(
            min=64,
            envvar="CRYSTAL_RELAY_CONNECTIONS",
            help="Connections at once, if the process may open twice as many files. A waiting device holds one.",
        ),
    ] = 8_192,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_TRUSTED_PROXY",
            metavar="CIDR",
            help="Proxies whose X-Forwarded-For is trusted: addresses or networks, with commas between. Repeatable.",
            show_default="none",
        ),
    ] = None,
    s3_endpoint: S3Endpoint = None,
    s3_allow_http: S3AllowHttp = False,
    peer_url: Annotated[
        str | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_PEER_URL",
            metavar="URL",
            help="Where other relay processes on the same bucket reach this one.",
            show_default="http://, the host and the port",
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            envvar="CRYSTAL_RELAY_BROKER",
            metavar="URL",
            help="A Redis or Valkey that tells the processes on a bucket of writes, in place of themselves.",
            show_default="none",
        ),
    ] = None,
    drain_seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=60,
            envvar="CRYSTAL_RELAY_DRAIN_SECONDS",
            help="Seconds it goes on serving after SIGTERM, so that proxies notice.",
            show_default="5 on a bucket, 0 on a directory",
        ),
    ] = None,
    log: Annotated[
        Literal["text", "json"],
        typer.Option(envvar="CRYSTAL_RELAY_LOG", help="The format of log lines on stderr."),
    ] = "text",
    v1: Annotated[
        bool,
        typer.Option(
            "--v1",
            envvar="CRYSTAL_RELAY_V1",
            help="Serve the published prototype's routes too (docs/relay-v1.md).",
        ),
    ] = False,
    v1_expire_hours: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="CRYSTAL_RELAY_V1_EXPIRE_HOURS",
            help="Hours after which the prototype's drops are deleted, read or not; 0 for never.",
        ),
    ] = 0,
    as_json: Annotated[
        bool,
        typer.Option("--json", envvar="CRYSTAL_RELAY_JSON", help="Print the address and errors as JSON."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", envvar="CRYSTAL_RELAY_VERBOSE", help="Log each request to stderr."),
    ] = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Prints the address on stdout once it accepts connections. Creating a vault needs the enrolment token: the value of
    CRYSTAL_RELAY_ENROLL_TOKEN, else one that is printed on stderr at the first start. If CRYSTAL_RELAY_METRICS_TOKEN is set,
    that token gives access to /metrics. Either may instead be in a file named by CRYSTAL_RELAY_ENROLL_TOKEN_FILE or
    CRYSTAL_RELAY_METRICS_TOKEN_FILE, which is read again when it changes.
    """
    with told(as_json=as_json):
        from crystal_relay.server import RelaySettings
        from crystal_relay.server.logs import LogForm, start_log
        from crystal_relay.server.peers.broker_address import checked_broker, password_in
        from crystal_relay.server.settings import (
            DRAIN_SECONDS,
            STORE_CONCURRENCY,
            STORE_CONCURRENCY_BUCKET,
            SWEEP_SECONDS,
            SWEEP_SECONDS_BUCKET,
            network_of,
        )

        place = StorePlace.of_options(store, s3_endpoint, s3_allow_http)
        if tls and place.directory is None:
            raise BadRequest(
                "a relay with a certificate of its own keeps its objects in a directory",
                hint="Leave out --tls and put a proxy with TLS in front of it, or use --store file:///directory.",
            )
        if broker is not None:
            checked_broker(broker)
            if not place.is_bucket:
                raise BadRequest(
                    "one process serves a directory: there is no other to tell",
                    hint="Leave out --broker, or use --store s3://BUCKET/PREFIX.",
                )
            require("redis", "a broker")
        enroll, metrics = secret_of_environment(ENROLL_VARIABLE), secret_of_environment(METRICS_VARIABLE)
        if store_concurrency is None:
            store_concurrency = STORE_CONCURRENCY_BUCKET if place.is_bucket else STORE_CONCURRENCY
        if vault_concurrency is None:
            vault_concurrency = (store_concurrency + 1) // 2
        settings = RelaySettings(
            enroll_token=enroll.token,
            metrics_token=metrics.token,
            quota_bytes=quota_bytes,
            quota_entries=quota_entries,
            cap_bytes=cap_bytes,
            foundings_per_hour=foundings_per_hour,
            rate_per_token=rate_per_token,
            rate_per_address=rate_per_address,
            deletion_seconds_min=deletion_days * 86_400,
            unused_days=_unused_days(expire_unused_days),
            store_concurrency=store_concurrency,
            vault_concurrency=vault_concurrency,
            sweep_seconds=SWEEP_SECONDS_BUCKET if place.is_bucket else SWEEP_SECONDS,
            connections_max=connections,
            trusted_proxies=tuple(network_of(each) for each in parts_of(trusted_proxy or ())),
        )
        if drain_seconds is None:  # a directory has one process, so nobody can take over
            drain_seconds = DRAIN_SECONDS if place.is_bucket else 0.0
        known = [enroll.token or "", metrics.token or "", *secrets_of_environment()]
        if broker is not None:
            known.append(password_in(broker))
        start_log(LogForm(log), verbose=verbose, known_secrets=known)
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.set_threshold(GARBAGE_OBJECTS)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(
                _run(
                    host,
                    port,
                    place,
                    settings,
                    peer_url,
                    broker,
                    ready_file,
                    as_json=as_json,
                    v1=v1,
                    v1_expire_hours=v1_expire_hours,
                    tls_at=reached_host(host, address) if tls else None,
                    drain_seconds=drain_seconds,
                    secrets=(enroll, metrics),
                    known_secrets=known,
                )
            )


@dataclass(frozen=True, slots=True)
class Secret:
    """A token of the environment, if it has one. `file`: where it comes from, and may change."""

    variable: str
    token: str | None = field(default=None, repr=False)
    file: Path | None = None

    def read_again(self) -> str:
        """The token that the file holds now. Raises BadRequest, without the token."""
        assert self.file is not None, "a variable is read once"
        return _usable(_token_in(self.file, f"{self.variable}_FILE"), f"{self.variable}_FILE")


def secret_of_environment(variable: str) -> Secret:
    """The token in a variable, or in the file that `<variable>_FILE` names. Raises BadRequest, without the token."""
    # Removed, so that child processes do not inherit it.
    token = os.environ.pop(variable, "")
    file = os.environ.pop(f"{variable}_FILE", "")
    if token and file:
        raise BadRequest(f"{variable} and {variable}_FILE are both set", hint="Set one of them.")
    if file:
        path, name = Path(file), f"{variable}_FILE"
        return Secret(variable, _usable(_token_in(path, name), name), path)
    return Secret(variable, _usable(token, variable) if token else None)


def _usable(token: str, name: str) -> str:
    from crystal_relay.server.authorization import ENROLL_TOKEN

    if ENROLL_TOKEN.match(token) is None:
        raise BadRequest(
            f"{name} holds no usable token",
            hint="It has 16 to 256 visible ASCII characters. `openssl rand -hex 32` makes a good one.",
        )
    return token


def secrets_of_environment() -> tuple[str, ...]:
    """Secrets that libraries read from the environment, which the log must not show."""
    return tuple(value for name in _SECRET_VARIABLES if (value := os.environ.get(name)))


def peer_url_of(given: str | None, listener: socket.socket) -> str:
    """The given URL, else that of the listening socket. Raises BadRequest."""
    if given is not None:
        return check_relay_url(given, allow_insecure=True)
    host, port = listener.getsockname()[:2]
    if host in _WILDCARDS:
        host = _own_address(*_WILDCARDS[host])
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _run(
    host: str,
    port: int,
    place: StorePlace,
    settings: "RelaySettings",
    peer_url: str | None,
    broker: str | None,
    ready_file: Path | None,
    *,
    as_json: bool,
    v1: bool,
    v1_expire_hours: int,
    tls_at: str | None,
    drain_seconds: float,
    secrets: tuple[Secret, Secret],
    known_secrets: list[str],
) -> None:
    """Open all parts of a relay process, serve, and close them in the reverse order. `tls_at`: the host to name, with TLS.
    `secrets`: the tokens for enrolment and for metrics; new ones are added to `known_secrets`."""
    from crystal_relay.cli.extensions import EXTENSIONS, served
    from crystal_relay.notify import Notifier, OrderedNotifier
    from crystal_relay.server import create_app
    from crystal_relay.server.admin import admin_socket
    from crystal_relay.server.authorization import ensure_enrollment
    from crystal_relay.server.operator import Operator
    from crystal_relay.server.peers import PeerLink, Peers
    from crystal_relay.server.renewals import renewed
    from crystal_relay.server.serving import Server, allow_open_files, listen
    from crystal_relay.server.tls import pinned_url, renew_certificate, tls_context

    connections_max = allow_open_files(settings.connections_max)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listen(host, port))
        ordered = OrderedNotifier() if broker is not None else None
        notifier = ordered or Notifier()
        store = await open_store(place, notifier=notifier)
        stack.push_async_callback(store.aclose)
        # A directory belongs to one process, which needs no address that others can reach.
        peers: PeerLink | None = None
        if broker is not None and ordered is not None:
            from crystal_relay.server.peers.broker import BrokerPeers

            peers = BrokerPeers(store, ordered, url=broker)
        elif place.is_bucket:
            peers = Peers(store, notifier, url=peer_url_of(peer_url, listener))
        application = create_app(
            store, settings, peers=peers, extensions=served(v1=v1, v1_expire_hours=v1_expire_hours)
        )
        relay = application.state.relay
        relay.admission.connections_max = connections_max
        if settings.enroll_token is None:
            await ensure_enrollment(relay.registry, _announce_enrollment)
        if place.directory is not None:
            operator = Operator(
                store,
                registry=relay.registry,
                sweeper=relay.sweeper,
                forget=relay.forget,
                extensions=EXTENSIONS,
            )
            await stack.enter_async_context(admin_socket(place.directory, operator, EXTENSIONS))
        if peers is not None:
            await stack.enter_async_context(peers.running())
        enroll, metrics = secrets

        def renew_enroll_token() -> None:
            token = enroll.read_again()
            known_secrets.append(token)
            relay.grants.accept_only(token)

        def renew_metrics_token() -> None:
            relay.metrics_token = metrics.read_again()
            known_secrets.append(relay.metrics_token)

        files: dict[Path, Callable[[], None]] = {}
        if enroll.file is not None:
            files[enroll.file] = renew_enroll_token
        if metrics.file is not None:
            files[metrics.file] = renew_metrics_token
        server, url = Server(application, listener, drain_seconds=drain_seconds), ""
        if tls_at is not None and place.directory is not None:
            certificate = await asyncio.to_thread(certificate_file, place.directory)
            context = tls_context(certificate)
            files[certificate] = partial(renew_certificate, context, certificate)
            server = Server(application, listener, context=context)
            url = pinned_url(tls_at, listener.getsockname()[1], certificate)

        def ready() -> None:
            gc.collect()  # else freezing would keep its garbage as well
            gc.freeze()  # what was imported and built stays
            shown = url or server.url
            text = json.dumps({"url": shown, "pid": os.getpid()})
            if ready_file is not None:
                _write_atomically(ready_file, text)
            print(text if as_json else shown, flush=True)

        await stack.enter_async_context(renewed(files))
        await server.serve(ready=ready, signals=True)


def _unused_days(days: int) -> int:
    """Raises BadRequest."""
    if 0 < days < UNUSED_DAYS_MIN:
        raise BadRequest(
            f"a vault may go unused for {UNUSED_DAYS_MIN} days at least",
            hint=f"Give --expire-unused-days {UNUSED_DAYS_MIN} or more, or 0 for never.",
        )
    return days


def parts_of(values: Sequence[str]) -> list[str]:
    """What stands between commas or spaces in any of them."""
    return [part for value in values for part in value.replace(",", " ").split()]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop
    except ImportError:  # not available on every system; asyncio's loop is slower
        return asyncio.new_event_loop
    return new_event_loop


def _announce_enrollment(token: str) -> None:
    print(
        "This relay's enrolment token, shown only once (the relay keeps its hash). `crystal init` needs it:\n"
        f"  {token}\n"
        f"Lost it? `crystal-relay tokens create` makes another, or set {ENROLL_VARIABLE} to your own.",
        file=sys.stderr,
        flush=True,
    )


def _write_atomically(path: Path, text: str) -> None:
    """Write the file atomically: readers never see a part of it."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text + "\n")
        temporary.replace(path)
    except OSError as error:
        raise BadRequest(
            f"{path}: cannot be written ({error.strerror})", hint="Choose another --ready-file."
        ) from None


def _token_in(file: Path, variable: str) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_FILE_CHARS_MAX).strip()
    except OSError as error:
        raise BadRequest(
            f"the file that {variable} names cannot be read ({error.strerror})",
            hint="Make it readable by the user that runs the relay.",
        ) from None


def _own_address(family: socket.AddressFamily, remote: str) -> str:
    """The address of this machine on its default route. Sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((remote, _DISCARD_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        raise BadRequest(
            "this machine has no address that other relay processes can reach",
            hint="Name one: --peer-url http://10.0.0.5:18791",
        ) from None

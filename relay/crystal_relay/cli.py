"""`crystal-relay`: the command that runs a relay. The only place of this package that reads the environment."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn
from urllib.parse import unquote, urlsplit

import typer

from crystal_relay.errors import BadRequest, RelayError
from crystal_relay.store import Store

ENROLL_VARIABLE = "CRYSTAL_RELAY_ENROLL_TOKEN"
PORT = 18791

app = typer.Typer(
    name="crystal-relay",
    help="Crystal's relay: a blind dead drop for sealed memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def crystal_relay() -> None:
    """Crystal's relay: a blind dead drop for sealed memory."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = PORT,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where objects are kept: file:///directory, or memory: (nothing survives).",
            show_default="~/.crystal-relay",
        ),
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write the address here, as JSON, once connections are accepted.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say the address, and errors, as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log each request to stderr.")] = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Prints the address on stdout once it accepts connections. Creating a vault needs the enrolment token: the one in the
    environment variable CRYSTAL_RELAY_ENROLL_TOKEN, else one that is printed on stderr at the first start.
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    if not verbose:
        # Else every stranger's port scan would be a line in the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        _serve(host, port, store or _default_store(), ready_file, as_json=as_json)
    except RelayError as error:
        _fail(error, as_json=as_json)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def main() -> None:
    """The entry point of `crystal-relay`."""
    app()


def open_store(address: str) -> Store:
    """The store that `--store` names. Raises BadRequest, and what opening it raises."""
    hint = "Use --store file:///directory, or --store memory:"
    if address == "memory:":
        from crystal_relay.memory import MemoryStore

        return MemoryStore()
    parts = urlsplit(address)
    directory = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise BadRequest(f"{address}: not a store", hint=hint)
    if not directory.is_absolute():
        raise BadRequest(f"{address}: the directory has to be absolute", hint=hint)
    from crystal_relay.local import LocalStore

    return LocalStore(directory)


def _default_store() -> str:
    return (Path.home() / ".crystal-relay").as_uri()


def _serve(host: str, port: int, address: str, ready_file: Path | None, *, as_json: bool) -> None:
    enroll_token = _enroll_token_of_environment()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(host, port, address, enroll_token, ready_file, as_json=as_json))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop
    except ImportError:  # not on every system; slower without
        return asyncio.new_event_loop
    return new_event_loop


async def _run(
    host: str, port: int, address: str, enroll_token: str | None, ready_file: Path | None, *, as_json: bool
) -> None:
    from crystal_relay.server import Settings, create_app
    from crystal_relay.server.authorization import ensure_enrollment
    from crystal_relay.server.serving import Server, listen

    listener = listen(host, port)
    try:
        store = open_store(address)
    except BaseException:
        listener.close()
        raise
    try:
        application = create_app(store, Settings(enroll_token=enroll_token))
        if enroll_token is None:
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


def _enroll_token_of_environment() -> str | None:
    from crystal_relay.server.authorization import ENROLL_TOKEN

    # Taken out, so that it is not in the environment of anything started from here.
    token = os.environ.pop(ENROLL_VARIABLE, "")
    if not token:
        return None
    if ENROLL_TOKEN.match(token) is None:
        raise BadRequest(
            f"{ENROLL_VARIABLE} holds no usable token",
            hint="It has 16 to 256 visible ASCII characters. `openssl rand -hex 32` makes a good one.",
        )
    return token


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


def _fail(error: RelayError, *, as_json: bool) -> NoReturn:
    """The one place where errors become exit codes and words."""
    if as_json:
        said = {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}
        print(json.dumps(said), file=sys.stderr, flush=True)
    else:
        print(f"crystal-relay: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr, flush=True)
    raise SystemExit(error.exit_code)

"""``crystal serve``: the memory over HTTP for this machine alone, and a web page."""

import logging
import os
import threading
from typing import Annotated

import typer

from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy, NoSuchEntry, NotSetUp
from crystal_node.base.locking import FileLock, is_held
from crystal_node.base.settings import Settings, resolve, serve_token
from crystal_node.base.settings.settings import SERVE_VARIABLE
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit_line, note, say

Port = Annotated[
    int | None,
    typer.Option(
        "--port", metavar="N", min=0, max=65535, help="The port; 0 takes a free one. serve_port if not given."
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
Link = Annotated[
    bool, typer.Option("--link", help="Only make another link to the page of the gateway that runs.")
]
_PURPOSE = "crystal serve at "


def run(
    port: Port = None,
    open_page: Open = False,
    link: Link = False,
    as_json: Json = False,
) -> None:
    """Serve this device's memory over HTTP, to this machine alone.

    Programs and browsers of this machine can reach it, until Ctrl-C; nothing else can. The link that it prints opens the
    page once, within ten minutes; `crystal serve --link` makes another. Programs send the token in state/gateway/token of
    the home, or the one in CRYSTAL_SERVE_TOKEN. See docs/gateway.md.

    Example:

        crystal serve --open
    """
    if link:
        _link(resolve(), open_page=open_page, as_json=as_json)
    else:
        _serve(resolve(), port, open_page=open_page, as_json=as_json)


def _serve(settings: Settings, port: int | None, *, open_page: bool, as_json: bool) -> None:
    from crystal_node.surfaces.gateway.access import GatewayAccess, kept_token, new_link
    from crystal_node.surfaces.gateway.app import Gateway
    from crystal_node.surfaces.gateway.server import listen, port_of, serve

    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    settings.home.check_private()
    logging.basicConfig(format="crystal serve: %(message)s", level=logging.ERROR)
    access = GatewayAccess(settings.home, kept_token(settings.home, serve_token()), now_ms)
    running = _running(settings)
    if running is not None:
        raise HomeBusy(
            f"`crystal serve` runs already at {running}",
            hint="`crystal serve --link` makes a link to its page; Ctrl-C where it runs, or SIGTERM, ends it.",
        )
    with listen(settings.service.serve_port if port is None else port) as listener:
        number = port_of(listener)
        url = f"http://127.0.0.1:{number}/"
        with FileLock(settings.home.gateway_lock, purpose=_PURPOSE + url):

            def ready() -> None:
                page = f"{url}#link={new_link(settings.home, now_ms())}"
                if as_json:
                    emit_line({"url": url, "link": page, "pid": os.getpid()})
                else:
                    say(f"Serving at {url} for this machine alone, until Ctrl-C.")
                    say(f"Open the page within ten minutes: {page}")
                if open_page:
                    threading.Thread(
                        target=_open, args=(page,), daemon=True
                    ).start()  # some browsers keep it waiting

            serve(Gateway(resolve, access, number, _environment()), listener, ready)
    if not as_json:
        note("Stopped.")


def _environment() -> dict[str, str]:
    """The environment for commands that the gateway starts: without the token."""
    return {name: value for name, value in os.environ.items() if name != SERVE_VARIABLE}


def _link(settings: Settings, *, open_page: bool, as_json: bool) -> None:
    from crystal_node.surfaces.gateway.access import new_link

    url = _running(settings)
    if url is None:
        raise NoSuchEntry("no gateway runs on this home", hint="`crystal serve` starts one.")
    page = f"{url}#link={new_link(settings.home, now_ms())}"
    if as_json:
        emit_line({"url": url, "link": page})
    else:
        say(page)
    if open_page:
        _open(page)


def _running(settings: Settings) -> str | None:
    """The address of the gateway that runs on this home; None if none does."""
    if not is_held(settings.home.gateway_lock):
        return None
    try:
        text = settings.home.gateway_lock.read_text(errors="replace")
    except OSError:
        return None
    return text.partition(_PURPOSE)[2].strip() or None


def _open(page: str) -> None:
    """Open the page in the browser. The link works once, so that reading the browser's arguments gains nothing."""
    import webbrowser

    if not webbrowser.open(page):
        note("No browser could be started here: open the link yourself.")

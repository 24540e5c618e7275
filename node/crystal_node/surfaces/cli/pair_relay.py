"""``crystal pair`` on a vault whose relay is in the home: which relay the second machine shall use.

::

    in the home --here--> open to other machines, on this machine's network
    in the home --an address--> moved to that relay, with all that it has
"""

import asyncio
import time

import httpx
from msgspec.structs import replace

from crystal_mirror.requests import StoreFailure
from crystal_node.base.errors import BadConfig, NotSetUp, UsageError
from crystal_node.base.locking import is_held
from crystal_node.base.settings import LOCAL_RELAY, Flags, Settings, enrolment_token, resolve
from crystal_node.base.wording import counted
from crystal_node.device.device import opened
from crystal_node.device.enrolment import found_vault
from crystal_node.device.own_relay import RELAY_PORT, check_port, own_address, shared_url
from crystal_node.device.registration import WrongEnrolmentToken
from crystal_node.surfaces.cli.console.output import emit_line, note, say
from crystal_node.surfaces.cli.console.prompts import read_secret, tell_wrong, typed_line
from crystal_node.surfaces.cli.console.relay_link import split_link
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.sync.progress import ProgressLines
from crystal_relay.address import http_client
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import BadRequest, StoreUnavailable
from crystal_relay.keys import vault_prefix
from crystal_relay.limits import WAIT_SECONDS_MAX

OPEN_SECONDS_MAX = 20.0
"""How long the background service may take to open the relay to the network."""
SYNCED_SECONDS_MAX = 30.0
"""A large memory takes longer: the new machine continues once the background service runs here."""
_ASK = "-"
HERE = "here"
"""What a person answers for this machine's own relay."""
_LOOK_SECONDS = 0.2
_ABOUT = """\
Your machines exchange data through a relay, which can read none of it. It can be on this machine: the others then reach it
at {here}, while this machine is on and in the same network. Or it is a server that runs all the time; its
operator gives you a link, or an address and a token. Either way, everything recorded so far is kept.
"""


def at_shared_relay(
    settings: Settings, token: str | None, *, here: bool, yes: bool, as_json: bool
) -> Settings:
    """The settings with a relay that other machines reach: as they are, opened to the network, or with the vault moved.

    ``settings`` have the relay of a flag or a variable, if there is one. ``token``: its enrolment token; ``-`` reads it.
    ``here``: this machine's own relay. ``yes``: move the vault although other machines use the relay in this home.

    Raises:
        UsageError: the vault has another relay. NotSetUp: a relay is needed, and nobody can be asked for it.
        What ``found_vault`` raises.
    """
    if settings.config.relay_url != LOCAL_RELAY or settings.vault is None:
        if token is not None or here:
            raise UsageError(
                "this vault has a relay that other machines reach already",
                hint="Leave out --enroll-token and --here.",
            )
        return settings
    given = "" if settings.relay_is_local else settings.relay_url
    if here and given:
        raise UsageError("--here and --relay each name a relay", hint="Use one of them.")
    if here or (not given and settings.service.own_relay_port):
        return _open_here(settings)
    asks = is_terminal() and not as_json
    others = _others(settings)
    if given and others and not yes:
        raise UsageError(
            f"{counted(others, 'other machine')} would not find the vault any more",
            hint="Add --yes, and then pair each of them again: `crystal pair` here, `crystal pair --code -` there.",
        )
    if not given and not asks:
        raise NotSetUp(
            "the relay of this vault is in this home, where no other machine reaches it",
            hint="Open it to your network with --here, or name one that both reach: --relay URL --enroll-token -",
        )
    if not given:
        say(_ABOUT.format(here=_address_here(settings)))
    token = enrolment_token() if token is None else token
    url, likely = "", HERE
    while True:
        try:
            url = given or typed_line(
                f"The relay: here, or an address such as https://relay.example.org ({likely}) ", likely
            )
            if url == HERE:
                return _open_here(settings)
            url, of_link = split_link(url)
            there = resolve(Flags(relay_url=url))
            secret = of_link or token
            if not secret or secret == _ASK:
                secret = read_secret("The relay's enrolment token: ", what="enrolment token")
            asyncio.run(found_vault(there, secret, ProgressLines(note)))
        except (BadConfig, StoreFailure, BadRequest) as error:
            if not asks:
                raise
            tell_wrong(error)
            likely = url if isinstance(error, WrongEnrolmentToken) else HERE
            given = token = ""
            continue
        if as_json:
            emit_line({"event": "moved", "relay": there.relay_url})
        else:
            say(f"The vault is at {there.relay_url} now, with all that it had.")
        return resolve()


async def until_reached(settings: Settings) -> None:
    """Waits until the relay in this home answers at the address that an invite names. Raises StoreUnavailable."""
    if not settings.relay_is_local:
        return
    url, deadline = shared_url(settings), time.monotonic() + OPEN_SECONDS_MAX
    async with http_client(url, connect=1, idle=5, connections_kept=1) as http:
        while True:
            try:
                await http.get("/health")
            except httpx.HTTPError:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"this machine's relay cannot be reached at {url.partition('#')[0]}",
                        hint="Open that port in the firewall, or choose another one: crystal config set own_relay_port N. "
                        "`crystal agent logs` says if the port is taken.",
                    ) from None
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return


async def until_synced(relay: HttpStore, vault: bytes, device: bytes) -> None:
    """Waits for the newcomer's first round, where nobody serves the relay when this process has ended."""
    prefix, token = f"{vault_prefix(vault.hex())}cursor/{device.hex()}", None
    deadline = time.monotonic() + SYNCED_SECONDS_MAX
    while (left := deadline - time.monotonic()) > 0:
        token = await relay.wait(prefix, token=token, timeout=min(left, WAIT_SECONDS_MAX))
        if (await relay.list(prefix)).entries:
            return


def close_again(before: Settings) -> None:
    """Closes the relay in this home to the network, if it was closed before and nobody was added."""
    if before.relay_is_local and not before.service.own_relay_port and not _others(before):
        now = resolve()
        now.save(replace(now.config, own_relay_port=None))


def _others(settings: Settings) -> int:
    with opened(settings) as device:
        return sum(info.device != device.member.device_id for info in device.member.log.active())


def _address_here(settings: Settings) -> str:
    try:
        return settings.service.own_relay_host or own_address()
    except NotSetUp:
        return "its address"


def _open_here(settings: Settings) -> Settings:
    """Lets the background service open the relay in this home to the network. Raises UsageError: its port is taken."""
    port = settings.service.own_relay_port
    if not is_held(settings.home.setup_lock) and not (port and is_held(settings.home.watch_lock)):
        check_port(port or RELAY_PORT)
    if not settings.service.own_relay_port:
        settings.save(replace(settings.config, own_relay_port=str(RELAY_PORT)))
    return resolve()

"""``crystal pair`` on a vault whose relay is in the home: asks for one that both machines reach, and moves the vault there."""

import asyncio

from crystal_mirror.requests import StoreFailure
from crystal_node.base.errors import BadConfig, NotSetUp, UsageError
from crystal_node.base.settings import LOCAL_RELAY, Flags, Settings, enrolment_token, resolve
from crystal_node.device.enrolment import found_vault
from crystal_node.surfaces.cli.console.output import emit_line, note, say
from crystal_node.surfaces.cli.console.prompts import read_secret, typed_line
from crystal_node.surfaces.cli.console.terminal import is_terminal
from crystal_node.sync.progress import ProgressLines
from crystal_relay.errors import BadRequest

_ASK = "-"
_ABOUT = """\
Your machines meet at a relay: a small server that both reach, and that can read nothing of what it keeps. Start one where
it can stay, for instance on this machine:  crystal-relay serve --host 0.0.0.0
Its first start prints its enrolment token. What is recorded here goes along.
"""


def at_shared_relay(settings: Settings, token: str | None, *, as_json: bool) -> Settings:
    """The settings with a relay that other machines reach: those given, or with the vault moved to one.

    ``settings`` have the relay of a flag or a variable, if there is one. ``token``: its enrolment token; ``-`` reads it.

    Raises:
        UsageError: a token for a vault that has its relay. NotSetUp: a relay is needed, and nobody can be asked for it.
        What ``found_vault`` raises.
    """
    if settings.config.relay_url != LOCAL_RELAY or settings.vault is None:
        if token is not None:
            raise UsageError("this vault has its relay", hint="Leave out --enroll-token.")
        return settings
    given = "" if settings.relay_is_local else settings.relay_url
    asks = is_terminal() and not as_json
    if not given and not asks:
        raise NotSetUp(
            "the relay of this vault is in this home, where no other machine reaches it",
            hint="Start one that both reach, and name it here: crystal pair --relay URL --enroll-token -",
        )
    if not given:
        say(_ABOUT)
    token = enrolment_token() if token is None else token
    while True:
        try:
            url = given or typed_line("The relay's address, such as https://relay.example.org: ")
            there = resolve(Flags(relay_url=url, name=None))
            secret = token
            if not secret or secret == _ASK:
                secret = read_secret("The relay's enrolment token: ", what="enrolment token")
            asyncio.run(found_vault(there, secret, ProgressLines(note)))
        except (BadConfig, StoreFailure, BadRequest) as error:
            if not asks or (given and token):
                raise
            note(f"{error}. {error.hint or ''}".strip())
            token = ""
            continue
        if as_json:
            emit_line({"event": "moved", "relay": there.relay_url})
        else:
            say(f"The vault is at {there.relay_url} now, with all that it had.")
        return resolve()

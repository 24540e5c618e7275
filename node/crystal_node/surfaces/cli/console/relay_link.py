"""The option ``--relay``, which takes a relay's address or its operator's link with an enrolment token."""

from crystal_node.base.errors import BadConfig, UsageError
from crystal_node.surfaces.cli.console.prompts import read_secret
from crystal_relay.enrolment_link import read_enrolment_link
from crystal_relay.errors import BadRequest

_READ = "-"


def relay_and_token(relay: str | None, token: str | None) -> tuple[str | None, str | None]:
    """The relay's address and the enrolment token, from the options ``--relay`` and ``--enroll-token``.

    Raises:
        UsageError: a link and a token were given, or nothing can be read.
        BadConfig: the link is damaged.
    """
    if relay == _READ:
        relay = read_secret("The relay's link or address: ", what="link or address of a relay")
    if relay is None:
        return None, token
    url, of_link = split_link(relay)
    if of_link and token is not None:
        raise UsageError(
            "the relay's link has an enrolment token of its own", hint="Leave out --enroll-token."
        )
    return url, of_link or token


def split_link(text: str) -> tuple[str, str]:
    """The address and the token of a link; an address as it is, with no token. Raises BadConfig."""
    try:
        # Whether plain HTTP may be used, the settings decide.
        link = read_enrolment_link(text, allow_insecure=True)
    except BadRequest as error:
        raise BadConfig(str(error), hint=error.hint) from None
    return (text, "") if link is None else (link.url, link.token)

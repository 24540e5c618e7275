"""An operator's invitation of a person, in one line: the relay's address with an enrolment token in its fragment.

    https://relay.example.org#enrol=crystal_enrol_…
    https://192.168.1.20:18791#pin=<fingerprint>&enrol=crystal_enrol_…

A fragment is sent to no server, not even by a browser that opens the link. The token is a secret until it is used up.
"""

import re
from dataclasses import dataclass, field

from crystal_relay.address import check_relay_url
from crystal_relay.errors import BadRequest

_MARK = "enrol="
_TOKEN = re.compile(r"crystal_enrol_[A-Za-z0-9_-]{43}\Z")


@dataclass(frozen=True, slots=True)
class EnrolmentLink:
    """`url`: the relay's address, with its pin. `token`: the enrolment token."""

    url: str
    token: str = field(repr=False)

    def text(self) -> str:
        """The link. It holds the token."""
        return f"{self.url}{'&' if '#' in self.url else '#'}{_MARK}{self.token}"


def enrolment_link(url: str, token: str) -> EnrolmentLink:
    """A link for a token of this relay. Raises BadRequest: no address that other machines may use, or not a token of ours."""
    if _TOKEN.match(token) is None:
        raise BadRequest("a link takes a token of `crystal-relay tokens create` only")
    return EnrolmentLink(check_relay_url(url), token)


def read_enrolment_link(text: str, *, allow_insecure: bool = False) -> EnrolmentLink | None:
    """What a link says; None for an address without a token. Raises BadRequest for one that is damaged, without showing it."""
    plain, _, fragment = text.strip().partition("#")
    parts = fragment.split("&")
    tokens = [each.removeprefix(_MARK) for each in parts if each.startswith(_MARK)]
    if not tokens:
        return None
    pins = [each for each in parts if not each.startswith(_MARK)]
    if len(tokens) > 1 or len(pins) > 1 or _TOKEN.match(tokens[0]) is None:
        raise BadRequest("the relay's link is damaged", hint="Copy it again, from https:// to its end.")
    url = f"{plain}#{pins[0]}" if pins else plain
    return EnrolmentLink(check_relay_url(url, allow_insecure=allow_insecure), tokens[0])

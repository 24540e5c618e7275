"""Receiving messages of other processes: verified, addressed to this one, each once."""

import re
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from crystal_relay.errors import Unauthorized
from crystal_relay.limits import MIB
from crystal_relay.notify import Notifier
from crystal_relay.server.admission import authenticated
from crystal_relay.server.load import Load
from crystal_relay.server.peers.messages import AUTHORIZATION, BODY_BYTES_MAX, Heard, News, answer, read
from crystal_relay.server.peers.transport import AnotherProcess
from crystal_relay.server.rates import Rates
from crystal_relay.server.replies import JsonReply
from crystal_relay.server.requests import content_length, head_of, no_query, small_body, text_of
from crystal_relay.server.settings import RelaySettings

ORIGINS_MAX = 1024
"""Processes whose last sequence number is remembered."""
BODIES_BYTES_MAX = 16 * MIB
"""All bodies that are arriving. Their sender is known only once they are complete."""
_ANYBODY = "peers"
_CODE = re.compile(rf"{AUTHORIZATION}[0-9a-f]{{64}}\Z")
_REGISTRY = "r/vault/"

Forget = Callable[[str | None], None]
"""Called with a vault whose credentials may have changed; None means any vault."""


class PeerReceiver:
    """The receiving side."""

    def __init__(
        self, notifier: Notifier, *, secret: Callable[[], bytes | None], met: Callable[[News], None]
    ) -> None:
        """`met` is called with each message of a serving process, after it was applied."""
        self.forget: Forget | None = None
        self.messages = 0
        self.missed = 0
        """How often writes' numbers were missing."""
        self._notifier = notifier
        self._secret = secret
        self._met = met
        self._load = Load(bytes_max=BODIES_BYTES_MAX, bytes_of_vault_max=BODIES_BYTES_MAX)
        self._sequences: OrderedDict[str, int] = OrderedDict()

    async def answer(self, request: Request, settings: RelaySettings, rates: Rates) -> Response:
        """Answer one message over HTTP. Raises Unauthorized, AnotherProcess, BadRequest and related errors."""
        rates.before_lookup(request.scope)
        no_query(request.scope)
        head = head_of(request.scope)
        size = content_length(head, BODY_BYTES_MAX)  # §R10.1-1
        if _CODE.match(text_of(head.get(b"authorization")) or "") is None:
            rates.failed(request.scope)
            raise Unauthorized("the relay does not know these credentials")
        with self._load.gathering(_ANYBODY, size):
            body = await small_body(request.scope, request.receive, size, settings)
        secret = self._secret()
        try:
            if secret is None:  # before the start, after the stop
                raise Unauthorized("the relay does not know these credentials")
            news, code = read(secret, text_of(head.get(b"authorization")), body)
        except Unauthorized:
            rates.failed(request.scope)
            raise
        authenticated(request.scope)
        self.take(news)
        return JsonReply(Heard(answer(secret, code)))

    def take(self, news: News) -> None:
        """Apply a verified message. A repeated one changes nothing. Raises AnotherProcess."""
        if news.to != self._notifier.name or news.origin == self._notifier.name:  # §R10.1-2
            raise AnotherProcess("the message is for another process")
        if news.sequence <= self._sequences.get(news.origin, 0):
            return
        self._sequences[news.origin] = news.sequence
        self._sequences.move_to_end(news.origin)
        if len(self._sequences) > ORIGINS_MAX:
            self._sequences.popitem(last=False)
        self.messages += 1
        for vault in news.forget:
            self._forget(vault)
        if news.forget_all:
            self._forget(None)
        if not news.url:
            return
        known = news.origin in self._notifier.others
        if self._notifier.heard(news.origin, news.first, news.last, news.groups):
            # A missed message may have announced a revocation.
            self._forget(None)
            self.missed += known
        for group, _ in news.groups:
            if group.startswith(_REGISTRY):
                self._forget(group.removeprefix(_REGISTRY).rstrip("/"))
        self._met(news)

    def _forget(self, vault: str | None) -> None:
        if self.forget is not None:
            self.forget(vault)

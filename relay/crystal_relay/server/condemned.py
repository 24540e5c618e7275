"""Deletions requested by a Core: stored durably, carried out by the sweeper.

    r/condemned/<vault>/<id>     the request's JSON

One request names keys, or all keys under a prefix up to a last one. It is limited to its vault and never reaches the device
log; both are checked when it is made and again when it is carried out.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from crystal_relay.errors import UNDECODABLE, BadRequest, Forbidden, NotFound, StoreDamaged, TooManyRequests
from crystal_relay.keys import check_key, check_prefix
from crystal_relay.limits import CONDEMNED_KEYS_MAX
from crystal_relay.server.expiry import ExpiryKind, expiry_at, record_expiry
from crystal_relay.server.scopes import CHANNELS, parse_place
from crystal_relay.store import Store
from crystal_relay.wire import Condemnation

PENDING_MAX = 64
"""Pending requests of one vault. A Core with this many waits for the sweeper."""
ID_BYTES = 16
_PROTECTED = "devlog"


def condemned_prefix(vault: str) -> str:
    """The prefix of a vault's condemnations."""
    return f"r/condemned/{vault}/"


class Condemned:
    """The condemnations of all vaults."""

    def __init__(self, store: Store, *, retry_seconds: float, clock: Callable[[], float] = time.time) -> None:
        """`retry_seconds`: when to retry if too many are pending."""
        self._store = store
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._adding: Counter[str] = Counter()

    async def add(self, vault: str, condemnation: Condemnation) -> str:
        """Store a condemnation durably and return its id. Raises BadRequest, Forbidden, TooManyRequests."""
        check_condemnation(condemnation)
        # Counted before it is stored: otherwise many concurrent ones would all find room.
        self._adding[vault] += 1
        try:
            pending = await self._store.list(condemned_prefix(vault), limit=PENDING_MAX)
            if len(pending.entries) + self._adding[vault] > PENDING_MAX:  # §R3.4-5
                raise TooManyRequests(
                    f"{PENDING_MAX} deletions are under way in this vault", retry_after=self._retry_seconds
                )
            name = secrets.token_hex(ID_BYTES)
            due = expiry_at(int(self._clock()), ExpiryKind.CONDEMNED, vault, name)
            await record_expiry(self._store, due)
            await self._store.put_new(condemned_prefix(vault) + name, msgspec.json.encode(condemnation))
            # A sweeper whose clock is ahead may have found nothing there and removed the record.
            await record_expiry(self._store, due)
        finally:
            self._adding[vault] -= 1
            if not self._adding[vault]:
                del self._adding[vault]
        return name

    async def read(self, vault: str, name: str) -> Condemnation | None:
        """Read and check a condemnation; None if it is missing. Raises StoreDamaged."""
        try:
            text = await (await self._store.get(condemned_prefix(vault) + name)).read()
        except NotFound:
            return None
        try:
            condemnation = msgspec.json.decode(text, type=Condemnation)
            check_condemnation(condemnation)
        except (BadRequest, Forbidden, *UNDECODABLE):
            raise StoreDamaged("a record of what is to be deleted is damaged") from None
        return condemnation


def check_condemnation(condemnation: Condemnation) -> None:
    """Check that it names keys, or a range of them, that may be deleted. Raises BadRequest, Forbidden."""

    keys, prefix, through = condemnation.keys, condemnation.prefix, condemnation.through
    if keys is not None and prefix is None and through is None:
        if not 1 <= len(keys) <= CONDEMNED_KEYS_MAX:  # §R3.4-1
            raise BadRequest(f"one names 1 to {CONDEMNED_KEYS_MAX} keys")
        for key in keys:
            parse_place(key)
            _check_channel(key)
    elif keys is None and prefix is not None and through is not None:
        check_prefix(prefix)
        check_key(through)
        _check_channel(prefix)
        if not prefix.endswith("/") or not through.startswith(prefix):  # §R3.4-1
            raise BadRequest("a prefix ends with a slash, and the last key begins with it")
    else:
        raise BadRequest("one names either `keys`, or `prefix` and `through`")


def _check_channel(name: str) -> None:
    channel = name.partition("/")[0]
    if channel == _PROTECTED:  # §R3.4-4
        raise Forbidden("the device log is never deleted")
    if channel not in CHANNELS:
        raise BadRequest("no channel has such keys")

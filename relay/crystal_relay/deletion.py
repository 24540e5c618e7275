"""Having many objects deleted: the port beside `Store`, and what does it over a store that has no such call.

A relay takes the request down and carries it out later (`POST …/condemned`); it is done, for whoever asks, once it is on
record. `DirectDeleter` deletes on the spot, by `list` and `delete`: for stores that no relay serves, as tests have them.

Both refuse the same: a range whose prefix does not end with a slash or whose last key is not in it, and the device log.
Keys that are gone are no error, so repeating a request is none. A key that is written again before the relay gets to it is
deleted as well: who condemns a name never writes it again.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from crystal_relay.errors import BadRequest, Forbidden
from crystal_relay.keys import check_key, check_prefix, check_vault
from crystal_relay.limits import CONDEMNED_KEYS_MAX
from crystal_relay.store import Store

_PROTECTED = "devlog"


@runtime_checkable
class Condemner(Protocol):
    """What takes condemnations. Keys are the port's full ones."""

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """Have these keys deleted, 500 at most; or all that begin with `prefix` and do not come after `through`.

        Raises BadRequest, Forbidden (the device log; a token that does not lead), TooManyRequests (as many as may be are
        under way), StoreUnavailable.
        """
        ...


def condemner_of(store: Store) -> Condemner:
    """The store itself if it takes condemnations, else one that deletes directly."""
    return store if isinstance(store, Condemner) else DirectDeleter(store)


class DirectDeleter:
    """A `Condemner` over any store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        check_condemned(keys, prefix, through)
        if keys:
            for key in keys:
                await self._store.delete(key)
            return
        after = ""
        while True:
            page = await self._store.list(prefix, after=after)
            within = [entry.key for entry in page.entries if entry.key <= through]
            for key in within:
                await self._store.delete(key)
            if not page.more or len(within) < len(page.entries):
                return
            after = within[-1]


def check_condemned(keys: Sequence[str], prefix: str, through: str) -> None:
    """Raises BadRequest, Forbidden unless it names keys, or a range of them, that may be deleted."""
    if keys:
        if prefix or through:
            raise BadRequest("one names either keys or a range of them")
        if len(keys) > CONDEMNED_KEYS_MAX:
            raise BadRequest(f"one names at most {CONDEMNED_KEYS_MAX} keys")
        for key in keys:
            _check_channel(check_key(key))
        return
    if not (prefix and through):
        raise BadRequest("one names keys, or a prefix and the last key")
    _check_channel(check_prefix(prefix))
    if not prefix.endswith("/") or not check_key(through).startswith(prefix):
        raise BadRequest("a prefix ends with a slash, and the last key begins with it")


def _check_channel(name: str) -> None:
    root, vault, channel = (*name.split("/", 3), "", "")[:3]
    if root != "v" or not channel:
        raise BadRequest("what is condemned lies in a vault's channel")
    check_vault(vault)
    if channel == _PROTECTED:
        raise Forbidden("the device log is never deleted")

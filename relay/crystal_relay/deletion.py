"""Condemning many objects to deletion: a port beside `Store`, and an implementation on any store.

A relay records the request and carries it out later (`POST …/condemned`); for the caller it is done once it is recorded.
`DirectDeleter` deletes at once, by `list` and `delete`, in stores that no relay serves, such as those of tests.

Both refuse a range whose prefix does not end with a slash or whose last key is not in it, and the device log. Missing keys are
no error, so requests are idempotent. A key that is written again before the relay deletes it is deleted too: condemned names
are never used again.
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
    """Accepts condemnations. Keys are full ones, as in `Store`."""

    async def condemn(self, *, keys: Sequence[str] = (), prefix: str = "", through: str = "") -> None:
        """Condemn these keys, at most 500, or all that begin with `prefix`, up to `through`.

        Raises BadRequest, Forbidden (the device log; a token that does not lead), TooManyRequests (too many are pending),
        StoreUnavailable.
        """
        ...


def condemner_of(store: Store) -> Condemner:
    """The store itself if it is a `Condemner`, else a `DirectDeleter`."""
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
    """Raise BadRequest or Forbidden unless these keys, or this range, may be deleted."""
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

"""Requests for many small objects (`POST …/reads`, `POST …/writes`), as plain ASGI, like those for one (`objects`).

Each object takes its own turn at the store, counts for quota and fairness as one that is asked for alone, and needs the same
rights. What a request for many saves is the request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from crystal_relay.batches import WRITE_BODY_BYTES_MAX, Found, Lacking, encode_reads, parse_writes
from crystal_relay.errors import UNDECODABLE, AlreadyExists, BadRequest, NotFound, StoreDamaged
from crystal_relay.keys import check_vault, vault_prefix
from crystal_relay.limits import BATCH_BYTES_MAX, KEYS_JSON_BYTES_MAX
from crystal_relay.server.authorization import device_of_header
from crystal_relay.server.concurrency import READS_OF_VAULT_AT_ONCE, VaultConcurrency
from crystal_relay.server.load import Load, taken
from crystal_relay.server.rates import Rates
from crystal_relay.server.registry import Registry
from crystal_relay.server.replies import NoSuchMethod, error_reply, send_bytes, send_json
from crystal_relay.server.requests import Head, content_length, head_of, no_query, small_body
from crystal_relay.server.scopes import CHANNELS, Identity, parse_place
from crystal_relay.server.settings import RelaySettings
from crystal_relay.server.usage import Usage
from crystal_relay.store import Store
from crystal_relay.wire import KeysRequest, WrittenReply

OF_BATCH_AT_ONCE = 16
"""Operations at the store that one request has running."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batches:
    """`/v2/vaults/{vault}/reads`, `/v2/vaults/{vault}/writes`."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: RelaySettings,
        rates: Rates,
        usage: Usage,
        load: Load,
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._rates = rates
        self._usage = usage
        self._load = load
        self._reads = VaultConcurrency(READS_OF_VAULT_AT_ONCE)

    @property
    def served(self) -> dict[str, tuple[str, ...]]:
        """Paths in Starlette's notation, and their methods."""
        return {"/v2/vaults/{vault}/reads": ("POST",), "/v2/vaults/{vault}/writes": ("POST",)}

    async def read(self, scope: Scope, receive: Receive, send: Send, vault: bytes) -> None:
        """Answer with the objects at the named keys, as far as a reply holds them. Raises RelayError, ClientGone."""
        if not await _is_post(scope, receive, send, "read_objects"):
            return
        identity, head = await self._device(scope, vault)
        size = content_length(head, KEYS_JSON_BYTES_MAX)
        with self._load.gathering(identity.vault, size):
            asked = _keys_of(await small_body(scope, receive, size, self._settings))
        places = [parse_place(key) for key in asked.keys]
        for place in places:
            if place.mailbox is not None:  # §R3.9-2
                raise BadRequest("what is in an invite's mailbox is read one at a time")
            identity.require_read(place)
        self._rates.check_batch(identity, len(places))
        room = _Room(BATCH_BYTES_MAX)
        names = [vault_prefix(identity.vault) + place.key for place in places]
        with self._load.answering(
            identity.vault, min(BATCH_BYTES_MAX, len(names) * asked.bytes_max)
        ):  # §R9-10
            found = await _each(names, lambda name: self._found(identity.vault, name, asked.bytes_max, room))
            await send_bytes(scope, taken(send), encode_reads(found))

    async def write(self, scope: Scope, receive: Receive, send: Send, vault: bytes) -> None:
        """Create blobs. Raises RelayError, ClientGone."""
        if not await _is_post(scope, receive, send, "write_objects"):
            return
        identity, head = await self._device(scope, vault)
        identity.require_change()
        size = content_length(head, WRITE_BODY_BYTES_MAX)  # §R3.10-1
        with self._usage.arriving(identity.vault, size), self._load.gathering(identity.vault, size):  # §R9-9
            objects = parse_writes(await small_body(scope, receive, size, self._settings))
            for key, _ in objects:
                place = parse_place(key)
                if place.channel is not CHANNELS["blob"]:  # §R3.10-2
                    raise BadRequest("only blobs are written many at a time")
                identity.require_write(place)
            self._rates.check_batch(identity, len(objects))
            self._usage.admit(identity.vault, sum(len(body) for _, body in objects))  # §R3.10-4
            created = await _each(objects, lambda each: self._created(identity.vault, *each))
        await send_json(scope, send, WrittenReply(created))

    async def _found(self, vault: str, name: str, bytes_max: int, room: "_Room") -> Found:
        await self._reads.enter(vault)
        try:
            async with await self._store.get(name, length=bytes_max) as found:
                if found.size > bytes_max or not room.take(found.size):  # §R3.9-3
                    return Lacking.ALONE
                return await found.read()
        except NotFound:
            return Lacking.ABSENT
        except StoreDamaged:
            return Lacking.DAMAGED
        finally:
            self._reads.leave(vault)

    async def _created(self, vault: str, key: str, body: bytes) -> bool:
        try:
            await self._store.put_new(vault_prefix(vault) + key, body)  # §R3.10-3
        except AlreadyExists:
            return False
        self._usage.stored(vault, len(body))
        return True

    async def _device(self, scope: Scope, vault: bytes) -> tuple[Identity, Head]:
        no_query(scope)
        head = head_of(scope)
        name = check_vault(vault.decode())
        value = head.get(b"authorization")
        return await device_of_header(value, self._registry, name, self._rates, scope), head


class _Room:
    """What is left of a reply's bytes."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True


async def _each(items: Sequence[Item], do: Callable[[Item], Awaitable[Result]]) -> list[Result]:
    """Do it for each, some at once. All end before an error is raised, which is that of the first item that had one."""
    results: list[Result | BaseException] = [AssertionError()] * len(items)
    waiting = iter(enumerate(items))

    async def work() -> None:
        for at, item in waiting:
            try:
                results[at] = await do(item)
            except Exception as error:  # noqa: BLE001  raised below, once nothing runs any more
                results[at] = error

    await asyncio.gather(*(work() for _ in range(min(OF_BATCH_AT_ONCE, len(items)))))
    done: list[Result] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def _keys_of(text: bytes) -> KeysRequest:
    try:
        return msgspec.json.decode(text, type=KeysRequest)  # §R3.9-1
    except msgspec.ValidationError as error:
        raise BadRequest(f"the JSON does not fit: {error}") from None
    except UNDECODABLE:
        raise BadRequest("the body is not JSON") from None


async def _is_post(scope: Scope, receive: Receive, send: Send, route: str) -> bool:
    scope["crystal.route"] = route
    if scope["method"] == "POST":
        return True
    refused = NoSuchMethod("that method is not served here")
    await error_reply(refused, headers={"allow": "POST"})(scope, receive, send)
    return False

"""Tokens of the compatibility layer: agent, role and space of each.

    r/v1/token/<hash>                     a registered token; deleted when it is revoked
    r/v1/member/<space>/<id>              the token's agent; never deleted, so that its drops keep their sender
    r/v1/member/<space>/<id>.revoked      it no longer counts as a reader

A token's id is the first 12 hex digits of its hash. The member is written before the token is registered: a crash between the
two leaves a reader that never reads, which `list` shows and `revoke` removes, never a device for which no drops are kept.
"""

import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Self

import msgspec

from crystal_prototype.relay.names import HOLDER_DIGITS, Role, V1Channel, check_agent, check_space
from crystal_relay.errors import UNDECODABLE, AlreadyExists, BadRequest, Forbidden, NotFound, StoreDamaged
from crystal_relay.store import Listed, Store
from crystal_relay.tokens import HASH

DEFAULT_SPACE = "default"
TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")
"""32 random bytes, base64url without padding."""
REMEMBERED_MEMBERS_MAX = 4096
_RECORD_VERSION = 1
_ID = re.compile(rf"[0-9a-f]{{{HOLDER_DIGITS}}}\Z")
_MEMBERS = "r/v1/member/"
_REVOKED = ".revoked"


def new_token() -> str:
    """A fresh token. The relay keeps its hash only."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """The hash that the relay stores of a token."""
    return hashlib.sha256(token.encode("ascii")).hexdigest()


class WrongToken(Forbidden):
    """The bearer token is unknown or revoked."""

    hint = "`crystal-relay v1 add` makes a token."


@dataclass(frozen=True, slots=True)
class V1Holder:
    """The holder of a token. `id` is unique to the token, also among tokens of one agent."""

    id: str
    space: str
    agent: str
    role: Role

    def reads(self, channel: V1Channel) -> bool:
        """Whether the drops on this channel are for this device: it has the reading role.

        Its own drops too: with relay settings in its environment a Core's hook drops at the relay, and the Core's poller is
        what takes them in.
        """
        return self.role is channel.reader


@dataclass(frozen=True, slots=True)
class V1Member:
    """A holder, and whether its token was revoked."""

    holder: V1Holder
    revoked: bool


class V1Token(msgspec.Struct, frozen=True):
    """A token as the operator sees it."""

    id: str
    agent_id: str
    role: Role
    space: str
    revoked: bool = False
    read_at: int = 0
    """Milliseconds since 1970 when it last asked for drops, to the hour; 0 if never."""
    waiting: int = 0
    """Drops that wait for it, and their bytes."""
    waiting_bytes: int = 0
    missed: int = 0
    """Drops that were deleted before it confirmed them."""

    @classmethod
    def of(cls, holder: V1Holder, *, revoked: bool = False) -> Self:
        """The token of that holder."""
        return cls(holder.id, holder.agent, holder.role, holder.space, revoked)


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    agent_id: str
    role: Role
    space: str
    token_hash: str


class Tokens:
    """Creates, finds and revokes tokens. Only immutable records are cached: a revocation takes effect at once, everywhere."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: OrderedDict[str, _Record] = OrderedDict()

    async def add(self, token_hash: str, agent: str, role: Role, space: str = DEFAULT_SPACE) -> V1Holder:
        """Register a token. Raises BadRequest, AlreadyExists (another hash has the same prefix: make a new token)."""
        if HASH.match(token_hash) is None:
            raise BadRequest("a token's hash is 64 lower-case hex digits")
        record = _Record(_RECORD_VERSION, check_agent(agent), role, check_space(space), token_hash)
        text = msgspec.json.encode(record)
        await self._store.put_new(_member_key(space, token_hash[:HOLDER_DIGITS]), text)
        await self._store.put_new(_token_key(token_hash), text)
        return _holder(record)

    async def identify(self, token: str) -> V1Holder:
        """The holder of a token. Raises WrongToken."""
        if TOKEN.match(token) is None:
            raise WrongToken("wrong token")
        try:
            record = await self._read(_token_key(token_hash(token)))
        except NotFound:
            raise WrongToken("wrong token") from None
        return _holder(record)

    async def members(self, space: str | None = None) -> AsyncGenerator[V1Member]:
        """All tokens ever made, of one space or of all, including revoked ones."""
        prefix = _MEMBERS if space is None else f"{_MEMBERS}{space}/"
        previous = ""
        async for entry in entries(self._store, prefix):
            key = entry.key
            if key == previous + _REVOKED:
                yield V1Member(_holder(await self._member(previous)), revoked=True)
                previous = ""
                continue
            if previous:
                yield V1Member(_holder(await self._member(previous)), revoked=False)
            previous = key
        if previous:
            yield V1Member(_holder(await self._member(previous)), revoked=False)

    async def agent_of(self, space: str, dropper: str) -> str:
        """The agent of a token, by its id. Raises NotFound if there never was such a token."""
        return (await self._member(_member_key(space, dropper))).agent_id

    async def revoke(self, identity: str) -> V1Holder:
        """Revoke the token of that id. Idempotent. Raises NotFound."""
        holder = await self._find(identity)
        key = _member_key(holder.space, holder.id)
        await self._store.delete(_token_key((await self._member(key)).token_hash))
        try:
            await self._store.put_new(key + _REVOKED, b"{}")
        except AlreadyExists:
            return holder
        return holder

    async def _find(self, identity: str) -> V1Holder:
        if _ID.match(identity):
            async for member in self.members():
                if member.holder.id == identity:
                    return member.holder
        raise NotFound("there is no token of that id", hint="`crystal-relay v1 list` shows the ids.")

    async def _member(self, key: str) -> _Record:
        """A member's record, cached because it never changes."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = await self._read(key)
            if len(self._records) > REMEMBERED_MEMBERS_MAX:
                self._records.popitem(last=False)
        return record

    async def _read(self, key: str) -> _Record:
        text = await (await self._store.get(key)).read()
        try:
            return msgspec.json.decode(text, type=_Record)
        except UNDECODABLE:
            raise StoreDamaged("a record of the compatibility layer's tokens is damaged") from None


async def entries(store: Store, prefix: str, *, after: str = "") -> AsyncGenerator[Listed]:
    """All entries under a prefix, in order, read page by page."""
    more = True
    while more:
        page = await store.list(prefix, after=after)
        more = page.more
        for entry in page.entries:
            yield entry
            after = entry.key


def _holder(record: _Record) -> V1Holder:
    return V1Holder(record.token_hash[:HOLDER_DIGITS], record.space, record.agent_id, record.role)


def _token_key(name: str) -> str:
    return f"r/v1/token/{name}"


def _member_key(space: str, identity: str) -> str:
    return f"{_MEMBERS}{space}/{identity}"

"""Enrolment tokens: their holders can create vaults.

    r/enrollment/<SHA-256 of the token>     {"label", "created", "uses", "expires", "quota_bytes"}; of older relays less
    r/enrolled/<SHA-256 of the token>/…     its uses, and the vaults that began to claim one in r/enrolling/… (see `grants`)
    r/enrollment-closed                     {"since"}: no token creates a vault

Only hashes are kept, so a token is shown once, when it is created. Deleting the record revokes the token at once at every
process, since none is cached. Vaults created with it are not affected.
"""

import asyncio
import hashlib
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from crystal_relay.errors import UNDECODABLE, AlreadyExists, BadRequest, EnrollmentClosed, NotFound
from crystal_relay.server.records import Records
from crystal_relay.store import Store

PREFIX = "r/enrollment/"
USES_PREFIX = "r/enrolled/"
BEGINS = "crystal_enrol_"
"""A token says what it is, so that devices know it wherever somebody pastes it, and keep it out of the memory."""
TOKEN_BYTES = 32
CLOSED_KEY = "r/enrollment-closed"
ID_CHARS = 12
LABEL_CHARS_MAX = 64
USES_MAX = 1_000
"""Of a token with a number of uses: one page of their records."""
READS_AT_ONCE = 128
_ID = re.compile(rf"[0-9a-f]{{{ID_CHARS},64}}\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")


class Enrollment(msgspec.Struct, frozen=True):
    """One token. `id` is the beginning of its hash; `created` is in Unix seconds, 0 if unknown. `used`: how many vaults it has
    made. The limits are as in `EnrollmentRecord`."""

    id: str
    label: str
    created: int
    uses: int = 0
    expires: int = 0
    quota_bytes: int = 0
    used: int = 0


class EnrollmentState(msgspec.Struct, frozen=True):
    """Whether the operator has closed enrolment, and since when (Unix seconds, 0 if it is open)."""

    closed: bool
    since: int = 0


class _Closed(msgspec.Struct, frozen=True):
    since: int


class EnrollmentRecord(msgspec.Struct, frozen=True):
    """What the store keeps of a token. `uses`: vaults that it can make, 0 for any number; `expires`: in Unix seconds, 0 for
    never; `quota_bytes`: of each vault that it makes, 0 for the relay's."""

    label: str = ""
    created: int = 0
    uses: int = 0
    expires: int = 0
    quota_bytes: int = 0


def new_enrollment_token() -> str:
    """A fresh token. Tokens of older relays have no prefix, and stay good."""
    return BEGINS + secrets.token_urlsafe(TOKEN_BYTES)


def enrollment_hash(token: str) -> str:
    """The hash of a token, which is all that is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def enrollment_key(token_hash: str) -> str:
    """Key of a token's record."""
    return PREFIX + token_hash


def uses_prefix(token_hash: str) -> str:
    """Prefix of the records of a token's uses."""
    return f"{USES_PREFIX}{token_hash}/"


def begun_prefix(token_hash: str) -> str:
    """Prefix of the marks of vaults that began to claim a use of a token."""
    return f"r/enrolling/{token_hash}/"


def day_of(seconds: int) -> str:
    """A time in Unix seconds as a date and a time of day, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


@dataclass(frozen=True, slots=True)
class Enrollments:
    """The enrolment tokens in a store."""

    store: Store

    async def add(self, token_hash: str, record: EnrollmentRecord) -> Enrollment:
        """Add a token. Idempotent; the first label and limits stay. Raises BadRequest."""
        label = record.label
        if _HASH.match(token_hash) is None:
            raise BadRequest("a token's hash has 64 lower-case hex digits")
        if len(label) > LABEL_CHARS_MAX or not label.isprintable():
            raise BadRequest(f"a label has at most {LABEL_CHARS_MAX} characters, all of them printable")
        if not 0 <= record.uses <= USES_MAX:
            raise BadRequest(f"a token has at most {USES_MAX} uses, or any number (0)")
        if record.expires and record.expires <= record.created:
            raise BadRequest("a token cannot expire before it is made")
        if record.quota_bytes < 0:
            raise BadRequest("a quota is not negative")
        try:
            await self.store.put_new(PREFIX + token_hash, msgspec.json.encode(record))
        except AlreadyExists:
            return await self._read(token_hash)
        return _shown(token_hash, record, 0)

    async def all(self) -> list[Enrollment]:
        """All tokens, unordered. One read and one list for each, a few at once."""
        found: list[Enrollment] = []
        names = await self._names()
        for at in range(0, len(names), READS_AT_ONCE):
            read = await asyncio.gather(*map(self._read_if_there, names[at : at + READS_AT_ONCE]))
            found += [each for each in read if each is not None]
        return found

    async def revoke(self, name: str) -> Enrollment:
        """Revoke the token whose hash begins with `name`. Raises NotFound, BadRequest (ambiguous or invalid)."""
        if _ID.match(name) is None:
            raise BadRequest(f"an enrolment token's id has {ID_CHARS} lower-case hex digits or more")
        names = [each for each in await self._names() if each.startswith(name)]
        if not names:
            raise NotFound(
                "there is no enrolment token of that id", hint="`crystal-relay tokens list` shows them."
            )
        if len(names) > 1:
            raise BadRequest(
                "several enrolment tokens begin so", hint="Give more digits of the token's hash."
            )
        found = await self._read(names[0])
        await self.store.delete(PREFIX + names[0])
        records = Records(self.store)
        for prefix in (uses_prefix(names[0]), begun_prefix(names[0])):
            await records.delete_all([prefix + each for each in await records.names(prefix)])
        return found

    async def state(self) -> EnrollmentState:
        """Whether enrolment is closed. Raises StoreDamaged."""
        try:
            return EnrollmentState(True, (await Records(self.store).read(CLOSED_KEY, _Closed)).since)
        except NotFound:
            return EnrollmentState(False)

    async def set_closed(self, closed: bool, *, now: int) -> EnrollmentState:
        """Close enrolment, or open it. Counts at every process with the next founding. Idempotent."""
        if closed:
            with suppress(AlreadyExists):
                await Records(self.store).put_new(CLOSED_KEY, _Closed(now))
        else:
            await self.store.delete(CLOSED_KEY)
        return await self.state()

    async def check_open(self) -> None:
        """Raise EnrollmentClosed if enrolment is closed."""
        found = await self.state()
        if found.closed:  # §R4.1-6
            raise EnrollmentClosed(f"this relay's operator takes no new vaults since {day_of(found.since)}")

    async def _names(self) -> list[str]:
        names: list[str] = []
        after, more = "", True
        while more:
            page = await self.store.list(PREFIX, after=after)
            names += [entry.key.removeprefix(PREFIX) for entry in page.entries]
            more = page.more
            after = page.entries[-1].key if page.entries else after
        return names

    async def _read_if_there(self, name: str) -> Enrollment | None:
        try:
            return await self._read(name)
        except NotFound:  # revoked meanwhile
            return None

    async def _read(self, name: str) -> Enrollment:
        text = await (await self.store.get(PREFIX + name)).read()
        try:
            record = msgspec.json.decode(text, type=EnrollmentRecord)
        except UNDECODABLE:
            record = EnrollmentRecord("(damaged record)")  # its token lets nobody in, and can be revoked
        return _shown(name, record, len(await Records(self.store).names(uses_prefix(name))))


def _shown(name: str, record: EnrollmentRecord, used: int) -> Enrollment:
    return Enrollment(
        name[:ID_CHARS], record.label, record.created, record.uses, record.expires, record.quota_bytes, used
    )

"""Tests whether a bucket honours conditional writes: repeated races that exactly one writer may win.

Stores cannot be asked: some ignore the condition silently, and some check before they write, which shows only when several
writers compete. What a race has shown stands in the bucket (`r/conditions`), so that the operator's commands, which
come and go, need none of their own.
"""

import contextlib
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import msgspec

from crystal_relay.errors import UNDECODABLE, Busy, NotFound, RelayError, StoreUnavailable
from crystal_relay.keys import PROBE_PREFIX
from crystal_relay.s3.bucket import Bucket, Content, Written, new_write
from crystal_relay.s3.settings import Conditions
from crystal_relay.s3.writes import conflict_pauses

ROUNDS = 12
RACERS = 16
UNCLEAR_ROUNDS_MAX = 4
"""Inconclusive rounds after which the bucket counts as unreachable."""
CLEANINGS_MAX = 3
FINDING_KEY = "r/conditions"
FINDING_SECONDS_MAX = 7 * 24 * 3600
"""How long commands rely on what was found. A relay finds it out at each start."""
_FINDING_BYTES_MAX = 4096

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result. `why` is for the operator; "" if conditions are honoured."""

    conditions: Conditions
    why: str = ""


class _Finding(msgspec.Struct, frozen=True):
    """A result as it stands in the bucket. `at`: Unix seconds. `endpoint`: another gateway may treat the bucket differently."""

    at: int
    endpoint: str
    conditions: Conditions
    why: str = ""


_DECODER = msgspec.json.Decoder(_Finding)


def remember(bucket: Bucket, result: ProbeResult, now: float) -> None:
    """Write the result into the bucket. Blocks. A failure is no error: the next command then finds it out again."""
    finding = _Finding(int(now), bucket.address.endpoint or "", result.conditions, result.why)
    try:
        bucket.put(FINDING_KEY, Content.of(msgspec.json.encode(finding)))
    except RelayError as error:
        _log.warning("what the bucket can do was not written into it: %s", error)


def remembered(bucket: Bucket, now: float) -> ProbeResult | None:
    """What a probe found through the same endpoint, if that is not long ago. One request. Blocks. Raises StoreUnavailable."""
    try:
        found = bucket.get(FINDING_KEY)
        assert found is not None  # the whole of an object is never beyond its end
        with contextlib.closing(found.stream):
            finding = _DECODER.decode(found.stream.read(min(found.length, _FINDING_BYTES_MAX)))
    except (NotFound, *UNDECODABLE):
        return None
    if finding.endpoint != (bucket.address.endpoint or "") or not 0 <= now - finding.at < FINDING_SECONDS_MAX:
        return None
    return ProbeResult(finding.conditions, finding.why)


def check_access(bucket: Bucket) -> None:
    """Write, read, list, delete an object. Blocks. Raises what the relay's requests would meet (Denied, StoreUnavailable)."""
    key = f"{PROBE_PREFIX}{secrets.token_hex(8)}/access"
    bucket.put(key, Content.of(key.encode()))
    found = bucket.get(key)
    if found is None or found.stream.read(found.length) != key.encode():
        raise StoreUnavailable("the object store does not give back what it was given")
    found.stream.close()
    if bucket.list(key)[0] != [(key, len(key))]:
        raise StoreUnavailable("the object store does not list what was just written")
    bucket.delete(key)


def probe(bucket: Bucket, *, rounds: int = ROUNDS, racers: int = RACERS) -> ProbeResult:
    """Costs `rounds` × (`racers` + 3) requests. Blocks. Raises StoreUnavailable when the bucket fails meanwhile."""
    place = f"{PROBE_PREFIX}{secrets.token_hex(8)}/"
    keys = [f"{place}{number:02d}" for number in range(rounds + UNCLEAR_ROUNDS_MAX)]
    used: list[str] = []
    try:
        with ThreadPoolExecutor(racers, "relay-s3-probe") as threads:
            clear = 0
            for key in keys:
                used.append(key)
                why = _race(bucket, key, threads, racers)
                if why:
                    return ProbeResult(Conditions.NOT_HONOURED, why)
                clear += why is not None
                if clear == rounds:
                    return ProbeResult(Conditions.HONOURED)
        raise StoreUnavailable("the object store fails too often to find out what it can do")
    finally:
        _clean_up(bucket, place, used)


def _race(bucket: Bucket, key: str, threads: ThreadPoolExecutor, racers: int) -> str | None:
    """Run a race. Returns the fault, "" for none, None if inconclusive. Raises StoreUnavailable."""
    start = Barrier(racers)
    writes = [new_write() for _ in range(racers)]

    def run(number: int) -> Written | None:
        start.wait()
        try:
            return bucket.create(key, Content.of(b"racer %d" % number), writes[number], always_ask=False)
        except Busy:
            return Written.CONFLICT
        except StoreUnavailable:
            if bucket.last_status == 501:
                raise _UnsupportedError from None
            return None

    try:
        results = list(threads.map(run, range(racers)))
    except _UnsupportedError:
        return "it does not know conditional writes"
    winners = [number for number, result in enumerate(results) if result is Written.STORED]
    if len(winners) > 1:
        return f"{len(winners)} of {racers} writers were told that they had created the same object"
    try:
        stored = bucket.get(key)
    except NotFound:
        refused_all = all(result is Written.TAKEN for result in results)
        return "it refused all who tried to create an object that was not there" if refused_all else None
    assert stored is not None  # the whole of an object is never beyond its end
    text = stored.stream.read(stored.length)
    if not winners:
        return None
    if text != b"racer %d" % winners[0]:
        return "it kept another object than that of the writer it told of success"
    if bucket.head(key).write != writes[winners[0]]:
        return "it does not keep an object's metadata, without which a repeated write cannot be recognised"
    return {
        Written.TAKEN: "",
        Written.STORED: "it let an object be created that was there",
        Written.CONFLICT: None,
        Written.UNSETTLED: None,
    }[_once_more(bucket, key)]


def _once_more(bucket: Bucket, key: str) -> Written:
    written = Written.CONFLICT
    for pause in conflict_pauses():
        written = bucket.create(key, Content.of(b"too late"), new_write(), always_ask=False)
        if written in (Written.STORED, Written.TAKEN):
            break
        time.sleep(pause)
    return written


def _clean_up(bucket: Bucket, place: str, keys: list[str]) -> None:
    """Delete the objects. Repeats, since such stores may show a deleted object again."""
    try:
        with ThreadPoolExecutor(4, "relay-s3-probe") as threads:
            for _ in range(CLEANINGS_MAX):
                list(threads.map(bucket.delete, keys))
                keys = [key for key, _ in bucket.list(place)[0]]
                if not keys:
                    return
    except RelayError as error:
        _log.warning("cleaning up after the start-up probe failed: %s", error)
    _log.warning("objects of the start-up probe were left behind under %s", PROBE_PREFIX)


class _UnsupportedError(Exception):
    """The store does not support conditions."""

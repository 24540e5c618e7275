"""Reading and extending the device log on the relay.

A round reads forward from the verified head, which takes two requests when nothing changed. The head's own bytes are read
each time (by a round that finds nothing new, their end), so that a relay that rolled the log back or shows another one is
noticed at once. A device that may write the log puts missing entries back from its own copy, byte for byte.
"""

from collections.abc import Callable

from crystal_mirror.devicelog.damage import compare_log, replace_damaged
from crystal_mirror.devicelog.log import DeviceLog, Verdict
from crystal_mirror.notices import Notice, NoticeBoard
from crystal_mirror.ports import Journal, JournalView
from crystal_mirror.requests import Flow, Get, GetMany, GetPart, List, Listing, PutNew, RetryBudget
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import TAIL_BYTES

READ_AHEAD_MAX = 64
VOIDS_AT_ONCE_MAX = 256
"""New void slots in a row after which one reading ends, since a relay may show junk forever. The next reading continues
there."""
META_PUT_BACK = "log.put-back"
"""In the journal: the relay had lost part of the device log, which was put back. Other things that it was told may be lost
as well: the code that tells it again removes this."""
_PAGE = 1000
META_OWN = "log.own"
"""In the journal: the slots that this device wrote."""
_SLOT_BYTES = 8


def read_log(
    log: DeviceLog,
    journal: Journal,
    keys: StoreKeys,
    notices: NoticeBoard | None = None,
    *,
    head_only: bool = False,
) -> Flow[bool]:
    """Takes in what the relay's log has beyond ours. Every new slot is kept before it counts. ``head_only``: only compares our
    head's end, and so its length and signature, with the relay's, unless another process of this device has read on.

    Returns False if the relay's log is behind ours (rolled back or emptied), or its entry at our head is damaged.

    Raises:
        LogForked: the relay shows other bytes at our head.
    """
    complete = True
    known = log.next_slot
    catch_up(log, journal)
    head_only &= log.next_slot == known
    if not head_only:
        yield from _retract_voids(log, journal, keys)
    if log.next_slot:
        kept = journal.log_entries()[log.next_slot - 1][1]
        if head_only and (yield from _ends_like(kept, keys.log(log.next_slot - 1))):
            return True
        head = yield Get(keys.log(log.next_slot - 1))
        if head is None:
            complete = False
            if notices:
                notices.put(
                    Notice.LOG_ROLLED_BACK,
                    f"the relay no longer has slot {log.next_slot - 1} of the device log",
                )
        elif head != kept:
            # Another history may have parted from ours before the head.
            yield from compare_log(log, journal, keys, notices)
            complete = False
    if head_only:
        return complete
    ahead = 1  # there is nearly always nothing new; each slot read is a request in each round of each device
    known = log.next_slot
    while complete:
        slots = range(log.next_slot, log.next_slot + ahead)
        found = yield GetMany(tuple(keys.log(slot) for slot in slots))
        for slot, data in zip(slots, found, strict=True):
            if data is None:
                return True
            take_slot(log, journal, slot, data)
        if min(log.trailing_voids, log.next_slot - known) >= VOIDS_AT_ONCE_MAX:  # §11.12-2
            return True
        ahead = min(ahead * 2, READ_AHEAD_MAX)
    return complete


def _ends_like(kept: bytes, key: str) -> Flow[bool]:
    """Whether what the relay has there is as long as what is kept here, and ends with the same bytes."""
    end = kept[-TAIL_BYTES:]
    found: bytes | None = yield GetPart(key, len(kept) - len(end), len(end) + 1)
    return found == end


def catch_up(log: DeviceLog, journal: Journal) -> None:
    """Follows what another process of this device has taken in, or taken back, since this one last looked."""
    entries = journal.log_entries()
    run = log.trailing_voids
    first = log.next_slot - run
    same = next((i for i, (*_, void) in enumerate(entries[first : log.next_slot]) if not void), None)
    still = min(run, len(entries) - first) if same is None else same
    if still < run:
        log.retract_voids(run - still)
    for _, data, _ in entries[log.next_slot :]:
        log.extend(data)


def _retract_voids(log: DeviceLog, journal: Journal, keys: StoreKeys) -> Flow[None]:
    """Steps back over the void slots after the head, from the first that the relay now shows with other bytes.

    Junk that a relay showed once must not shut a device out for good. Void slots before the head stay: taking an entry in
    their place would drop what was verified after them.
    """
    run = log.trailing_voids
    if not run:
        return
    kept = journal.log_entries()[log.next_slot - run : log.next_slot]
    same = 0
    while same < run:  # in pages: each slot may be as large as an entry can be
        some = kept[same : same + READ_AHEAD_MAX]
        there = yield GetMany(tuple(keys.log(slot) for slot, *_ in some))
        as_before = (entry[1] == data for entry, data in zip(some, there, strict=True))  # §9.3-13
        agree = next((i for i, agrees in enumerate(as_before) if not agrees), len(some))
        same += agree
        if agree < len(some):
            with journal.transaction() as transaction:
                transaction.drop_void_log_entries(log.next_slot - run + same)
            log.retract_voids(run - same)  # §9.3-13
            return


def take_slot(log: DeviceLog, journal: Journal, slot: int, data: bytes, *, own: bool = False) -> Verdict:
    """Judges a slot's bytes and keeps them. ``own`` records that this device wrote them."""
    assert slot == log.next_slot, "log slots are taken in order"
    verdict = log.extend(data)
    with journal.transaction() as transaction:
        transaction.keep_log_entry(slot, data, void=verdict is Verdict.VOID)
        if own:
            before = transaction.meta_get(META_OWN) or b""
            transaction.meta_set(META_OWN, before + slot.to_bytes(_SLOT_BYTES, "big"))
    return verdict


def own_slots(journal: JournalView) -> frozenset[int]:
    """The slots that this device wrote, according to its own journal. An entry's statement about its maker is only its
    signer's word."""
    kept = journal.meta_get(META_OWN) or b""
    return frozenset(
        int.from_bytes(kept[at : at + _SLOT_BYTES], "big") for at in range(0, len(kept), _SLOT_BYTES)
    )


def log_is_whole(log: DeviceLog, keys: StoreKeys) -> Flow[bool]:
    """Whether the relay lists every slot that this device has taken in. Nobody reads past a missing one."""
    expected, after = 0, ""
    while expected < log.next_slot:
        page: Listing = yield List(keys.log_prefix, after, _PAGE)
        rising = page.after(after)
        for key in rising:
            if keys.parse_slot(keys.log_prefix, key) != expected:
                return expected >= log.next_slot
            expected += 1
        if not rising or not page.more:
            break
        after = rising[-1]
    return expected >= log.next_slot


def restore_log(log: DeviceLog, journal: Journal, keys: StoreKeys, *, if_let: bool = False) -> Flow[int]:
    """Puts back every kept slot that the relay lacks or shows damaged, byte for byte. Returns how many. Needs the right to
    write the log, and for damaged ones the Core's token scope. ``if_let``: those that the relay does not let replace stay.

    Raises:
        LogForked: it shows another device log; nothing was written.
    """
    damaged = yield from compare_log(
        log, journal, keys
    )  # §11.13-3: nothing is written beside another history
    restored = 0
    with journal.transaction() as transaction:
        transaction.meta_set(META_PUT_BACK, b"yes")
    for slot, data, _ in journal.log_entries()[: log.next_slot]:
        created = yield PutNew(keys.log(slot), data)  # §11.13-1
        restored += created
    return restored + (yield from replace_damaged(journal, keys, damaged, if_let=if_let))


def append(
    log: DeviceLog,
    journal: Journal,
    keys: StoreKeys,
    build: Callable[[DeviceLog], bytes | None],
) -> Flow[bool]:
    """Adds an entry at the head, or decides again at the new head if another writer was first.

    ``build`` is given the current log and returns the sealed entry for its next slot, or None if there is nothing left to
    add, as when an earlier attempt whose reply was lost turns out to have landed. Returns whether this call added an entry.
    """
    retries = RetryBudget("a device-log entry")
    yield from read_log(log, journal, keys)
    while True:
        sealed = build(log)
        if sealed is None:
            return False
        assert log.would_take(sealed), "what would be void is not written"
        slot = log.next_slot
        created = yield PutNew(keys.log(slot), sealed)
        there = sealed if created else (yield Get(keys.log(slot)))
        if there != sealed:  # §9.3-14
            retries.spend()
        if there is None:
            continue
        verdict = take_slot(log, journal, slot, there, own=there == sealed)
        if there == sealed:
            assert verdict is Verdict.VALID, "a device-log entry that we sealed does not verify"
            return True
        yield from read_log(log, journal, keys)

"""What does not go on by itself on this device: each thing in one sentence with since when and why, and a remedy.

Decided from what was gathered (``DeviceFacts``), without a network; what matters most comes first. Things of the vault that only a
person decides on are concerns (``concerns``); a thing is told once, here or there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from crystal_mirror.membership.status import DeviceEntry, device_name, devices
from crystal_mirror.notices import Notice
from crystal_node.agent.health.channels import Channels
from crystal_node.agent.health.facts import STAGED_MAX, Background, FreeSpace, Others
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.settings import Settings
from crystal_node.base.wording import ago, counted, one_line
from crystal_node.device.access import TEXTS, Access, read_access
from crystal_node.device.activity import Activity, RoundFailure, UnknownLines, UnreadableTranscript
from crystal_node.device.device import Device
from crystal_node.device.recovery_kit import KitState, kit_state
from crystal_node.sync.embedding_notes import META_PROBLEM
from crystal_node.sync.maintenance.retention_status import other_model
from crystal_node.sync.members.duties_due import duties_due, unfinished
from crystal_node.sync.members.names import name_of

if TYPE_CHECKING:
    from crystal_mirror.membership.member import Member
from collections.abc import Iterable

from crystal_node.base.errors import describe

_HOUR_MS = 3600 * 1000

CORE_QUIET_MS = 13 * _HOUR_MS
"""A device that lives tells of itself each six hours at least; the Core missed two."""
ORDERED_MS_MAX = _HOUR_MS
"""What lies on the relay for longer, while nothing at all becomes durable, waits for a Core that is away."""
UNSENT_MS_MAX = _HOUR_MS // 4
"""What waits here for longer, with nobody to send it, is worth a word."""
ASKED_MS_MAX = 24 * _HOUR_MS
"""A command that was not answered for longer waits for a machine that is away."""
TRIED_MS_MAX = _HOUR_MS // 30
"""A round that failed is noted once a minute: only beyond twice that it says something that the last one was long ago."""
CLOCK_BACK_MS = _HOUR_MS // 6
"""A clock that is so much behind its own notes was set back."""
STRANGE_REMEDY = "A newer Crystal may know them; with it, `crystal backfill` records what was missed."

_DISTRUST = (
    "`crystal doctor` compares once more. If it stays so, move to another relay; what is here stays whole."
)
STOPPING = {
    Notice.LOG_FORKED: _DISTRUST,
    Notice.MIRROR_FORKED: _DISTRUST,
    Notice.MIRROR_GAP: "`crystal sync` on the Core puts back what it has; then `crystal repair`, there and here.",
    Notice.MIRROR_UNREADABLE: "Update Crystal on this machine, and then: crystal sync",
    Notice.EPOCH_OPEN: "`crystal sync` later; if it stays so, `crystal repair` on the Core.",
}
"""Notices of what stops this device, and what to do."""

RELAY_HINT = "Check the network, and the relay's address (`crystal doctor`). What is recorded waits here, and goes out later."


class StuckName(StrEnum):
    """The names, for programs."""

    DISK = "disk"
    CLOCK = "clock"
    RELAY = "relay"
    KEYS = "keys"
    SYNC = "sync"
    CORE = "core"
    MIRROR = "mirror"
    HELD = "held"
    FILES = "files"
    CAPTURE = "capture"
    JOB = "job"
    STAGING = "staging"
    COMMANDS = "commands"
    DATABASE = "database"


@dataclass(frozen=True, slots=True)
class Stuck:
    """One of them. ``since``: by this device's clock, in milliseconds; 0 if it is not known."""

    name: StuckName
    text: str
    remedy: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class CoreSeen:
    """The machine that leads, seen from a Node: ``seen_at`` by its own clock, 0 if it never told."""

    name: str
    seen_at: int


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """See the module. ``core``: None on the Core itself, and where nobody leads."""

    now_ms: int
    is_core: bool
    access: Access
    trouble: RoundFailure | None
    moments: dict[Activity, int]
    channels: Channels
    background: Background
    disks: tuple[FreeSpace, ...]
    core: CoreSeen | None
    quarantined: int
    notices: dict[str, str]
    generation_missing: int | None
    problems: tuple[UnreadableTranscript, ...]
    files_halted: str
    files_withheld: int
    others: Others = field(default_factory=Others)
    strange: tuple[UnknownLines, ...] = ()


def stuck(facts: DeviceFacts) -> list[Stuck]:
    """All that there is."""
    looks: tuple[Callable[[DeviceFacts], Iterator[Stuck]], ...] = (
        _disks,
        _clock,
        _relay,
        _keys,
        _nobody_syncs,
        _core,
        _mirror,
        _held,
        _files,
        _capture,
        _jobs,
        _staging,
        _commands,
        _faults,
    )
    return [found for look in looks for found in look(facts)]


def _disks(facts: DeviceFacts) -> Iterator[Stuck]:
    for disk in facts.disks:
        if disk.read_only:
            yield Stuck(
                StuckName.DISK,
                f"The disk of {disk.folder} takes no writes: nothing can be recorded.",
                "Find out why it is mounted read-only (a disk that fails often is), and mount it for writing.",
            )
        elif disk.low:
            yield Stuck(
                StuckName.DISK,
                f"Only {disk.words} left on the disk of {disk.folder}: soon nothing can be recorded or taken over.",
                "Make room. What waits here is safe, and nothing of it has to be done again.",
            )


def _clock(facts: DeviceFacts) -> Iterator[Stuck]:
    latest = max(facts.moments.values(), default=0)
    back = latest - facts.now_ms
    if back > CLOCK_BACK_MS:
        yield Stuck(
            StuckName.CLOCK,
            f"This machine's clock is {ago(back / 1000)} behind its own notes: it was set back, or is wrong.",
            "Set it, or have it set from the network. Nothing is decided by it, but relays with TLS may be refused.",
        )


def _relay(facts: DeviceFacts) -> Iterator[Stuck]:
    trouble = facts.trouble
    if trouble is None or facts.access is not Access.OPEN:
        return
    message = one_line(trouble.message, 200)
    tried = facts.now_ms - trouble.at
    last = f", last tried {ago(tried / 1000)} ago" if tried > TRIED_MS_MAX else ""
    if trouble.exit_code == ExitCode.RELAY_UNREACHABLE:
        text = f"The relay could not be reached for {_since(facts, trouble.since)}{last}: {message}."
        yield Stuck(StuckName.RELAY, text, RELAY_HINT, trouble.since)
        return
    text = f"Sync has failed for {_since(facts, trouble.since)}{last}: {message}."
    yield Stuck(StuckName.RELAY, text, trouble.hint or "`crystal doctor` looks for the cause.", trouble.since)


def _keys(facts: DeviceFacts) -> Iterator[Stuck]:
    if facts.generation_missing is not None:
        yield Stuck(
            StuckName.KEYS,
            f"This device was not given the keys of generation {facts.generation_missing}: nothing new can be sent or read.",
            "Run `crystal devices renew-keys` on the Core, or pair this machine again: `crystal pair --code -`.",
        )


def _nobody_syncs(facts: DeviceFacts) -> Iterator[Stuck]:
    waiting = facts.channels.conversations
    seconds = waiting.oldest_seconds or 0.0
    if facts.background.runner is not None or facts.trouble is not None or not waiting.unsent:
        return
    if seconds * 1000 > UNSENT_MS_MAX:
        yield Stuck(
            StuckName.SYNC,
            f"{counted(waiting.unsent, 'operation')} wait{_s(waiting.unsent)} here to be sent, for {ago(seconds)} at most: no "
            "agent is running that would do it.",
            "`crystal sync` does it now; `crystal agent install` has it done by itself.",
            facts.now_ms - round(seconds * 1000),
        )


def _core(facts: DeviceFacts) -> Iterator[Stuck]:
    """The Core is away: by its own last word, or because it takes nothing of what lies on the relay."""
    core, waiting = facts.core, facts.channels.conversations
    reached = facts.moments.get(Activity.ROUND, 0)
    if core is None or not reached:
        return
    lived = max(
        core.seen_at, facts.moments.get(Activity.PULL, 0)
    )  # what a Node takes over, the Core has written
    quiet = core.seen_at > 0 and reached - lived > CORE_QUIET_MS
    oldest = round((waiting.oldest_seconds or 0.0) * 1000)
    settled = facts.now_ms - facts.moments.get(Activity.ACK, 0)
    ignored = bool(waiting.stored) and min(oldest, settled) > ORDERED_MS_MAX
    if not (quiet or ignored):
        return
    name = one_line(core.name, 40)
    seen = f"was last heard of {_since(facts, core.seen_at)} ago" if core.seen_at else "was never heard of"
    text = f"The Core ({name}) {seen}."
    if waiting.stored:
        text += f" {counted(waiting.stored, 'operation')} of this device lie{_s(waiting.stored)} on the relay for it."
    remedy = f"Wake {name}, or run `crystal sync` there. If it is gone for good: `crystal promote` makes another one the Core."
    yield Stuck(StuckName.CORE, text, remedy, core.seen_at)


def _mirror(facts: DeviceFacts) -> Iterator[Stuck]:
    """What the relay shows keeps this device from going on."""
    for name, remedy in STOPPING.items():
        if name.value in facts.notices:
            detail = one_line(facts.notices[name.value], 200)
            yield Stuck(StuckName.MIRROR, f"{notice_text(name.value)} ({detail})", remedy)


def _held(facts: DeviceFacts) -> Iterator[Stuck]:
    if not facts.quarantined:
        return
    if Notice.HELD_REVOKED.value in facts.notices:
        remedy = "`crystal devices held DEVICE` says what it is, and takes or drops it."
    elif Notice.QUARANTINED.value in facts.notices:
        remedy = "`crystal repair` replays the log and compares again."
    else:
        remedy = "`crystal verify --deep` says what they are. A newer version may read them; nothing of it is lost here."
    text = f"{counted(facts.quarantined, 'thing')} from the relay could not be taken; kept and counted."
    yield Stuck(StuckName.HELD, text, remedy)


def _files(facts: DeviceFacts) -> Iterator[Stuck]:
    if facts.files_halted:
        text = f"Files are not synced: {facts.files_halted}."
        yield Stuck(StuckName.FILES, text, "`crystal files status` says what to do.")
    if facts.files_withheld:
        text = f"{counted(facts.files_withheld, 'deletion')} of files wait{_s(facts.files_withheld)} for a person."
        yield Stuck(StuckName.FILES, text, "`crystal files confirm` lists them, and has you decide.")


def _capture(facts: DeviceFacts) -> Iterator[Stuck]:
    if facts.problems:
        first = facts.problems[0]
        why = first.why.removeprefix("cannot be read: ")
        text = f"{counted(len(facts.problems), 'transcript')} cannot be read: {one_line(first.path, 120)} ({why})"
        more = len(facts.problems) - 1
        text += f", and {more} more." if more else "."
        yield Stuck(
            StuckName.CAPTURE, text, "Make them readable for you; `crystal capture` then records them."
        )
    for each in facts.strange:
        if each.is_told(facts.now_ms):
            yield Stuck(StuckName.CAPTURE, strange_text(each), STRANGE_REMEDY, each.since)


def strange_text(found: UnknownLines) -> str:
    """What is told of lines that are not understood."""
    where = f"{one_line(found.path, 120)}, byte {found.offset} ({one_line(found.why, 60)})"
    what = f"{found.lines:,} lines that {one_line(found.tool, 40)} wrote are of no kind that is known here"
    return f"{what}, and no words are among them: {where}."


def _jobs(facts: DeviceFacts) -> Iterator[Stuck]:
    for job in facts.background.failing:
        times = counted(job.failures, "time")
        how = "fell over by a mistake in Crystal" if job.broken else f"failed {times} in a row"
        text = f"The job {job.name} {how}: {one_line(job.text, 200)}"
        remedy = f"It is tried again by itself; `crystal jobs run {job.name}` does it now, `crystal agent logs` tells more."
        yield Stuck(StuckName.JOB, text, remedy, job.at)


def _staging(facts: DeviceFacts) -> Iterator[Stuck]:
    asking = facts.others.asking
    if len(asking) > STAGED_MAX:
        names = ", ".join(each.agent for each in asking[:STAGED_MAX])
        yield Stuck(
            StuckName.STAGING,
            f"{len(asking):,} new agents wait for you to say how their past is woven: {names} and others.",
            "`crystal staging list` shows them all, and what to type.",
            min(each.since for each in asking),
        )
    for each in facts.others.staging:
        if len(asking) > STAGED_MAX and each in asking:
            continue
        if each.failed:
            remedy = f"`crystal staging run {each.folder}` tries it again, once what was in the way is gone."
        else:
            remedy = f"`crystal staging run {each.folder}` weaves it or not, as you say; `crystal staging reject` drops it."
        yield Stuck(StuckName.STAGING, f"The new agent {each.agent} {each.words}.", remedy, each.since)


def _commands(facts: DeviceFacts) -> Iterator[Stuck]:
    found = facts.channels.commands
    if found is None:
        return
    here, seconds = found.running + found.waiting, found.oldest_seconds or 0.0
    since = facts.now_ms - round(seconds * 1000)
    if here and facts.background.runner is None:
        text = f"{counted(here, 'command')} of other devices wait{_s(here)} here, and no agent runs that would see to it."
        remedy = "`crystal agent run` does, or `crystal agent install` for good; `crystal commands list` shows them."
        yield Stuck(StuckName.COMMANDS, text, remedy, since)
    elif found.asked and seconds * 1000 > ASKED_MS_MAX:
        text = f"{counted(found.asked, 'command')} that this device asked for, for up to {ago(seconds)}, had no result yet."
        remedy = (
            "`crystal commands list` shows who was asked: wake that machine, or `crystal commands cancel ID`."
        )
        yield Stuck(StuckName.COMMANDS, text, remedy, since)


def _faults(facts: DeviceFacts) -> Iterator[Stuck]:
    faults = [
        *facts.others.faults,
        *([("jobs.db", facts.background.fault)] if facts.background.fault else []),
    ]
    for name, why in faults:
        text = f"{name} cannot be read: {one_line(why, 200)}"
        yield Stuck(StuckName.DATABASE, text, "`crystal doctor` says what that means, and what to do.")


def _s(count: int) -> str:
    return "s" if count == 1 else ""


def _since(facts: DeviceFacts, moment: int) -> str:
    return ago(max(facts.now_ms - moment, 0) / 1000)


KIT_FIX = "`crystal recovery show` shows the kit, `crystal recovery verify` has you type it back."


def kit_reminder(settings: Settings, member: "Member") -> str | None:
    """A sentence; None if there is a kit that works."""
    from crystal_node.sync.members.root_holders import holders

    match kit_state(settings.config, member.log.root):
        case KitState.NEVER if member.root is not None or not holders(member):
            return "the recovery kit was never verified: whoever loses all devices without it loses the vault"
        case KitState.OUTDATED:
            return "the recovery kit is of a root that was replaced: it opens nothing any more"
        case _:
            return None


ARRIVES_MS_MAX = 3600 * 1000
"""A newcomer that was not heard of for this long after it was added is worth a word."""


class ConcernName(StrEnum):
    """The names, for programs."""

    REVOKED = "revoked"
    REFUSED = "refused"
    FROZEN = "frozen"
    REVOCATION_UNFINISHED = "revocation-unfinished"
    RELAY_NOT_TOLD = "relay-not-told"
    ROOT_REPLACED = "root-replaced"
    OTHER_MODEL = "vectors-of-another-model"
    NO_VECTORS = "texts-without-vectors"
    KIT = "recovery-kit"
    NEVER_ARRIVED = "never-arrived"


@dataclass(frozen=True, slots=True)
class Concern:
    """One of them, with what to do about it."""

    name: ConcernName
    text: str


def concerns(device: Device) -> list[Concern]:
    """All that there are, what matters most first. No network."""
    member = device.member
    if not member.log.is_active(member.device_id):
        return [Concern(ConcernName.REVOKED, TEXTS[Access.REVOKED])]
    found: list[Concern] = []
    if read_access(device.journal) is Access.REFUSED:
        found.append(Concern(ConcernName.REFUSED, TEXTS[Access.REFUSED]))
    if member.log.lead is not None and member.log.lead.is_freeze:
        text = (
            "The vault is frozen: no machine is its Core, and nothing that is recorded reaches the others. "
            "`crystal promote`, on a machine that may lead, ends that."
        )
        found.append(Concern(ConcernName.FROZEN, text))
    begun = unfinished(device)
    if begun is not None:
        name = one_line(device_name(member, begun) or begun.hex()[:8], 40)
        found.append(
            Concern(
                ConcernName.REVOCATION_UNFINISHED,
                f"The revocation of {name} is not finished: run `crystal devices revoke {begun.hex()[:8]}` again.",
            )
        )
    if duties_due(device):
        text = "The relay was not told yet of the last revocation, root or grant: `crystal sync` does it."
        found.append(Concern(ConcernName.RELAY_NOT_TOLD, text))
    if device.root is not None and not device.holds_root:
        text = (
            "The vault's root that is kept here was replaced, and has no power any more: this machine no longer holds the "
            "root. If it shall, pair it with the newest code."
        )
        found.append(Concern(ConcernName.ROOT_REPLACED, text))
    if other_model(device):
        text = "The vault's vectors are of another model than this Core is set to: `crystal embed migrate` makes all anew."
        found.append(Concern(ConcernName.OTHER_MODEL, text))
    problem = device.journal.meta_get(META_PROBLEM)
    if member.is_core and problem is not None:
        text = (
            f"New text gets no vectors for now and is found by its words: {one_line(problem.decode(), 300)}. It gets them when "
            "that is over; `crystal embed status` tries it."
        )
        found.append(Concern(ConcernName.NO_VECTORS, text))
    reminder = kit_reminder(device.settings, member)
    if reminder is not None:
        found.append(Concern(ConcernName.KIT, f"{reminder[:1].upper()}{reminder[1:]}. {KIT_FIX}"))
    for entry in _never_arrived(device):
        text = (
            f"{name_of(entry)} was added, and was not heard of since. If it never finished joining, pair it again; if you do "
            f"not know it, revoke it: `crystal devices revoke {entry.info.device.hex()[:8]}`."
        )
        found.append(Concern(ConcernName.NEVER_ARRIVED, text))
    return found


def _never_arrived(device: Device) -> list[DeviceEntry]:
    """Devices that were added a while ago, and were not heard of since. They may never have finished joining."""
    now = now_ms()
    return [
        entry
        for entry in devices(device.member)
        if entry.cursor is None
        and entry.info.revoked is None
        and not entry.is_this
        and not entry.leads
        and entry.added is not None
        and now - entry.added.at > ARRIVES_MS_MAX
    ]


Mend = Callable[[], str]


class State(StrEnum):
    """What came of a check. Only ``FAILED`` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: its name, how it is, in words, and what to do if it is not well. ``mend``: does that."""

    name: str
    state: State
    what: str
    fix: str = ""
    exit_code: int = ExitCode.OK
    mend: Mend | None = field(default=None, compare=False, repr=False)


def failed(name: str, error: BaseException) -> Check:
    """A check that met an error, as any command would show it."""
    failure = describe(error)
    return Check(name, State.FAILED, failure.message, failure.hint, failure.exit_code)


def warned(name: str, error: BaseException) -> Check:
    """The same for what this device can do without."""
    failure = describe(error)
    return Check(name, State.WARNING, failure.message, failure.hint)


def guarded(name: str, look: Callable[[], Iterable[Check]]) -> list[Check]:
    """A look's checks; one that fails hides no other."""
    try:
        return list(look())
    except Exception as error:  # noqa: BLE001  a report about what is broken goes on to the next thing
        return [failed(name, error)]

"""What does not go on by itself on this device: each thing in one sentence with since when and why, and a remedy.

Decided from what was gathered (``Facts``), without a network; what matters most comes first. Things of the vault that only a
person decides on are concerns (``concerns``); a thing is told once, here or there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from crystal_mirror.notices import Notice
from crystal_node.agent.health.channels import Channels
from crystal_node.agent.health.disks import Disk
from crystal_node.agent.health.facts import Background
from crystal_node.agent.health.others import STAGED_MAX, Others
from crystal_node.base.errors import ExitCode
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.wording import ago, counted, one_line
from crystal_node.device.access import Access
from crystal_node.device.activity import Moment, Problem, Strange, Trouble

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
class Facts:
    """See the module. ``core``: None on the Core itself, and where nobody leads."""

    now_ms: int
    is_core: bool
    access: Access
    trouble: Trouble | None
    moments: dict[Moment, int]
    channels: Channels
    background: Background
    disks: tuple[Disk, ...]
    core: CoreSeen | None
    quarantined: int
    notices: dict[str, str]
    generation_missing: int | None
    problems: tuple[Problem, ...]
    files_halted: str
    files_withheld: int
    others: Others = field(default_factory=Others)
    strange: tuple[Strange, ...] = ()


def stuck(facts: Facts) -> list[Stuck]:
    """All that there is."""
    looks: tuple[Callable[[Facts], Iterator[Stuck]], ...] = (
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


def _disks(facts: Facts) -> Iterator[Stuck]:
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


def _clock(facts: Facts) -> Iterator[Stuck]:
    latest = max(facts.moments.values(), default=0)
    back = latest - facts.now_ms
    if back > CLOCK_BACK_MS:
        yield Stuck(
            StuckName.CLOCK,
            f"This machine's clock is {ago(back / 1000)} behind its own notes: it was set back, or is wrong.",
            "Set it, or have it set from the network. Nothing is decided by it, but relays with TLS may be refused.",
        )


def _relay(facts: Facts) -> Iterator[Stuck]:
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


def _keys(facts: Facts) -> Iterator[Stuck]:
    if facts.generation_missing is not None:
        yield Stuck(
            StuckName.KEYS,
            f"This device was not given the keys of generation {facts.generation_missing}: nothing new can be sent or read.",
            "Run `crystal devices renew-keys` on the Core, or pair this machine again: `crystal pair --code -`.",
        )


def _nobody_syncs(facts: Facts) -> Iterator[Stuck]:
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


def _core(facts: Facts) -> Iterator[Stuck]:
    """The Core is away: by its own last word, or because it takes nothing of what lies on the relay."""
    core, waiting = facts.core, facts.channels.conversations
    reached = facts.moments.get(Moment.ROUND, 0)
    if core is None or not reached:
        return
    lived = max(
        core.seen_at, facts.moments.get(Moment.PULL, 0)
    )  # what a Node takes over, the Core has written
    quiet = core.seen_at > 0 and reached - lived > CORE_QUIET_MS
    oldest = round((waiting.oldest_seconds or 0.0) * 1000)
    settled = facts.now_ms - facts.moments.get(Moment.ACK, 0)
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


def _mirror(facts: Facts) -> Iterator[Stuck]:
    """What the relay shows keeps this device from going on."""
    for name, remedy in STOPPING.items():
        if name.value in facts.notices:
            detail = one_line(facts.notices[name.value], 200)
            yield Stuck(StuckName.MIRROR, f"{notice_text(name.value)} ({detail})", remedy)


def _held(facts: Facts) -> Iterator[Stuck]:
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


def _files(facts: Facts) -> Iterator[Stuck]:
    if facts.files_halted:
        text = f"Files are not synced: {facts.files_halted}."
        yield Stuck(StuckName.FILES, text, "`crystal files status` says what to do.")
    if facts.files_withheld:
        text = f"{counted(facts.files_withheld, 'deletion')} of files wait{_s(facts.files_withheld)} for a person."
        yield Stuck(StuckName.FILES, text, "`crystal files confirm` lists them, and has you decide.")


def _capture(facts: Facts) -> Iterator[Stuck]:
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


def strange_text(found: Strange) -> str:
    """What is told of lines that are not understood."""
    where = f"{one_line(found.path, 120)}, byte {found.offset} ({one_line(found.why, 60)})"
    what = f"{found.lines:,} lines that {one_line(found.tool, 40)} wrote are of no kind that is known here"
    return f"{what}, and no words are among them: {where}."


def _jobs(facts: Facts) -> Iterator[Stuck]:
    for job in facts.background.failing:
        times = counted(job.failures, "time")
        how = "fell over by a mistake in Crystal" if job.broken else f"failed {times} in a row"
        text = f"The job {job.name} {how}: {one_line(job.text, 200)}"
        remedy = f"It is tried again by itself; `crystal jobs run {job.name}` does it now, `crystal agent logs` tells more."
        yield Stuck(StuckName.JOB, text, remedy, job.at)


def _staging(facts: Facts) -> Iterator[Stuck]:
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


def _commands(facts: Facts) -> Iterator[Stuck]:
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


def _faults(facts: Facts) -> Iterator[Stuck]:
    faults = [
        *facts.others.faults,
        *([("jobs.db", facts.background.fault)] if facts.background.fault else []),
    ]
    for name, why in faults:
        text = f"{name} cannot be read: {one_line(why, 200)}"
        yield Stuck(StuckName.DATABASE, text, "`crystal doctor` says what that means, and what to do.")


def _s(count: int) -> str:
    return "s" if count == 1 else ""


def _since(facts: Facts, moment: int) -> str:
    return ago(max(facts.now_ms - moment, 0) / 1000)

"""Findings: what is not well on this device or in its vault, each in a sentence with since when, and what to do.

``crystal status``, ``crystal doctor``, desktop notices, MCP and the web page show findings. Those that more than one of them
shows are decided here, each in one function, from values that were gathered before; nothing here uses the network.

`device_findings` finds what does not go on by itself on this device; `vault_findings` is in a module of that name.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from crystal_mirror.notices import Notice
from crystal_node.agent.health.channels import Channels
from crystal_node.agent.health.facts import STAGED_MAX, Background, FreeSpace, OtherFacts
from crystal_node.base.errors import ExitCode, describe
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.wording import ago, counted, one_line
from crystal_node.device.access import Access
from crystal_node.device.activity import Activity, RoundFailure, UnknownLines, UnreadableTranscript

_HOUR_MS = 3600 * 1000

CORE_QUIET_MS = 13 * _HOUR_MS
"""A running device reports itself at least every six hours: the Core missed two reports."""
ORDERED_MS_MAX = _HOUR_MS
"""What has been on the relay for longer, while nothing becomes durable, waits for a Core that is away."""
UNSENT_MS_MAX = _HOUR_MS // 4
"""Age of unsent changes from which it is a finding that nothing runs to send them."""
ASKED_MS_MAX = 24 * _HOUR_MS
"""A command without an answer for longer waits for a machine that is away."""
TRIED_MS_MAX = _HOUR_MS // 30
"""A failed round is noted once a minute: the time of the last attempt is worth saying from twice that on."""
CLOCK_BACK_MS = _HOUR_MS // 6
"""A clock this far behind its own notes was set back."""
ARRIVES_MS_MAX = 3600 * 1000
"""A device not heard of for this long after it was added may never have finished joining."""

_DISTRUST = (
    "`crystal doctor` compares once more. If it stays so, move to another relay; what is here stays whole."
)
STOPPING = {
    Notice.LOG_FORKED: _DISTRUST,
    Notice.MIRROR_FORKED: _DISTRUST,
    Notice.MIRROR_GAP: "`crystal sync` on the Core puts back what it has; then `crystal repair`, there and here.",
    Notice.MIRROR_UNREADABLE: "Update Crystal on this machine, and then: crystal sync",
    Notice.CLAIM_LOST: "If no copy of this machine runs elsewhere: `crystal promote` here makes it the Core again.",
    Notice.COPIED: "If two machines run with these keys: `crystal pair --new-keys --code -` on one of them.",
    Notice.EPOCH_OPEN: "`crystal sync` later; if it stays so, `crystal repair` on the Core.",
}
"""Notices of what stops this device, and what to do."""

RELAY_HINT = "Check the network, and the relay's address (`crystal doctor`). What is recorded waits here, and goes out later."


class Severity(StrEnum):
    """Only ``FAILED`` makes ``crystal doctor`` fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class FindingName(StrEnum):
    """Names for programs: of this device's findings, then of the vault's. The doctor's checks have names of their own."""

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

    VAULT_DELETION = "vault-deletion"
    REVOKED = "revoked"
    REFUSED = "refused"
    FROZEN = "frozen"
    REVOCATION_UNFINISHED = "revocation-unfinished"
    RELAY_NOT_TOLD = "relay-not-told"
    ROOT_REPLACED = "root-replaced"
    OTHER_MODEL = "vectors-of-another-model"
    NO_VECTORS = "texts-without-vectors"
    SET_ASIDE = "texts-set-aside"
    KIT = "recovery-kit"
    NEVER_ARRIVED = "never-arrived"
    GRANT_ASKED = "grant-asked"
    SAME_NAME = "two-devices-of-one-name"


Mend = Callable[[], str]
"""Fixes what was found and returns a sentence about it. May be repeated, and never changes the only copy of anything."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``fix``: what to do, "" if the text says it. ``since``: by this device's clock in milliseconds, 0 if unknown.
    ``exit_code``: of ``crystal doctor`` where it failed. ``mend``: what ``crystal doctor --fix`` runs."""

    name: str
    severity: Severity
    text: str
    fix: str = ""
    exit_code: int = ExitCode.OK
    since: int = 0
    mend: Mend | None = field(default=None, compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """The text and what to do."""
        return f"{self.text} {self.fix}".strip()

    def named(self, name: str) -> "Finding":
        """As a line of ``crystal doctor``: the text follows the check's name."""
        return replace(self, name=name, text=self.text[:1].lower() + self.text[1:].removesuffix("."))


def failed(name: str, error: BaseException) -> Finding:
    """A check that met an error, as any command would show it."""
    failure = describe(error)
    return Finding(name, Severity.FAILED, failure.message, failure.hint, failure.exit_code)


def warned(name: str, error: BaseException) -> Finding:
    """As ``failed``, for what this device can do without."""
    failure = describe(error)
    return Finding(name, Severity.WARNING, failure.message, failure.hint)


def guarded(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check. One that raises is a finding itself and hides no other."""
    try:
        return list(check())
    except Exception as error:  # noqa: BLE001  a report about what is broken goes on to the next thing
        return [failed(name, error)]


@dataclass(frozen=True, slots=True)
class CoreSeen:
    """The Core as a Node sees it. ``seen_at``: by its own clock, 0 if it never reported."""

    name: str
    seen_at: int


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What ``device_findings`` decides from. ``core``: None on the Core itself, and where there is none."""

    now_ms: int
    is_core: bool
    access: Access
    failure: RoundFailure | None
    last: dict[Activity, int]
    channels: Channels
    background: Background
    disks: tuple[FreeSpace, ...]
    core: CoreSeen | None
    quarantined: int
    notices: dict[str, str]
    generation_missing: int | None
    unreadable: tuple[UnreadableTranscript, ...]
    files_halted: str
    files_withheld: int
    others: OtherFacts = field(default_factory=OtherFacts)
    unknown_lines: tuple[UnknownLines, ...] = ()


def device_findings(facts: DeviceFacts) -> list[Finding]:
    """What does not go on by itself on this device, most important first."""
    return [
        *disk_findings(facts.disks),
        *clock_findings(facts.last, facts.now_ms),
        *(round_findings(facts.failure, facts.now_ms) if facts.access is Access.OPEN else ()),
        *key_findings(facts.generation_missing),
        *_nobody_syncs(facts),
        *_core(facts),
        *_mirror(facts),
        *_held(facts),
        *_files(facts),
        *transcript_findings(facts.unreadable, facts.unknown_lines, facts.now_ms),
        *job_findings(facts.background),
        *staging_findings(facts.others),
        *_commands(facts),
        *_database_faults(facts),
    ]


# --- found by status and by the doctor ---


def disk_findings(disks: Iterable[FreeSpace]) -> Iterator[Finding]:
    for disk in disks:
        if disk.read_only:
            yield Finding(
                FindingName.DISK,
                Severity.FAILED,
                f"The disk of {disk.folder} takes no writes: nothing can be recorded.",
                "Find out why it is mounted read-only (a disk that fails often is), and mount it for writing.",
                ExitCode.STORAGE,
            )
        elif disk.low:
            yield Finding(
                FindingName.DISK,
                Severity.FAILED,
                f"Only {disk.words} left on the disk of {disk.folder}: soon nothing can be recorded or taken over.",
                "Make room. What waits here is safe, and nothing of it has to be done again.",
                ExitCode.STORAGE,
            )


def clock_findings(last: dict[Activity, int], now: int) -> Iterator[Finding]:
    """Of this machine's clock against its own notes. ``last``: when each activity last happened."""
    back = max(last.values(), default=0) - now
    if back > CLOCK_BACK_MS:
        yield Finding(
            FindingName.CLOCK,
            Severity.WARNING,
            f"This machine's clock is {ago(back / 1000)} behind its own notes: it was set back, or is wrong.",
            "Set it, or have it set from the network. Nothing is decided by it, but relays with TLS may be refused.",
        )


def round_findings(failure: RoundFailure | None, now: int) -> Iterator[Finding]:
    """Of rounds of sync that fail."""
    if failure is None:
        return
    tried = now - failure.at
    last = f", last tried {ago(tried / 1000)} ago" if tried > TRIED_MS_MAX else ""
    since, message = _elapsed(failure.since, now), one_line(failure.message, 200)
    if failure.exit_code == ExitCode.RELAY_UNREACHABLE:
        text, fix = f"The relay could not be reached for {since}{last}: {message}.", RELAY_HINT
    else:
        text = f"Sync has failed for {since}{last}: {message}."
        fix = failure.hint or "`crystal doctor` looks for the cause."
    yield Finding(FindingName.RELAY, Severity.WARNING, text, fix, since=failure.since)


def key_findings(generation: int | None) -> Iterator[Finding]:
    """``generation``: of the keys that this device lacks, None if it lacks none."""
    if generation is not None:
        yield Finding(
            FindingName.KEYS,
            Severity.FAILED,
            f"This device was not given the keys of generation {generation}: nothing new can be sent or read.",
            "Run `crystal devices renew-keys` on the Core, or pair this machine again: `crystal pair --code -`.",
            ExitCode.WRONG_KEY,
        )


def transcript_findings(
    unreadable: Iterable[UnreadableTranscript], unknown: Iterable[UnknownLines], now: int
) -> Iterator[Finding]:
    """Of transcripts that cannot be read, and of lines in them that are of no known kind."""
    files = list(unreadable)
    if files:
        why = one_line(files[0].why.removeprefix("cannot be read: "), 120)
        text = f"{counted(len(files), 'transcript')} cannot be read: {one_line(files[0].path, 120)} ({why})"
        text += f", and {len(files) - 1} more." if len(files) > 1 else "."
        fix = "Make them readable for you; `crystal capture` then records them."
        yield Finding(FindingName.CAPTURE, Severity.WARNING, text, fix)
    for each in unknown:
        if each.is_told(now):
            where = f"{one_line(each.path, 120)}, byte {each.offset} ({one_line(each.why, 60)})"
            what = (
                f"{each.lines:,} lines that {one_line(each.tool, 40)} wrote are of no kind that is known here"
            )
            yield Finding(
                FindingName.CAPTURE,
                Severity.WARNING,
                f"{what}, and no words are among them: {where}.",
                "A newer Crystal may know them; with it, `crystal backfill` records what was missed.",
                since=each.since,
            )


def job_findings(background: Background) -> Iterator[Finding]:
    """Of jobs whose last run failed."""
    for job in background.failing:
        why = one_line(job.text, 200)
        if job.broken:
            yield Finding(
                FindingName.JOB,
                Severity.FAILED,
                f"The job {job.name} fell over by a mistake in Crystal: {why}",
                "`crystal agent logs` has the trace: report it, please. All other jobs go on.",
                ExitCode.UNEXPECTED,
                job.at,
            )
        else:
            yield Finding(
                FindingName.JOB,
                Severity.WARNING,
                f"The job {job.name} failed {counted(job.failures, 'time')} in a row: {why}",
                f"It is tried again by itself; `crystal jobs run {job.name}` does it now, `crystal agent logs` tells more.",
                since=job.at,
            )


def staging_findings(others: OtherFacts) -> Iterator[Finding]:
    """Of agents in staging that wait for a person. Many that wait for the same answer are one finding."""
    asking = others.asking if len(others.asking) > STAGED_MAX else ()
    if asking:
        names = ", ".join(each.agent for each in asking[:STAGED_MAX])
        yield Finding(
            FindingName.STAGING,
            Severity.WARNING,
            f"{len(asking):,} new agents wait for you to say how their past is woven: {names} and others.",
            "`crystal staging list` shows them all, and what to type.",
            since=min(each.since for each in asking),
        )
    for each in others.staging:
        if each in asking:
            continue
        if each.failed:
            fix = f"`crystal staging run {each.folder}` tries it again, once what was in the way is gone."
        else:
            fix = f"`crystal staging run {each.folder}` weaves it or not, as you say; `crystal staging reject` drops it."
        text = f"The new agent {each.agent} {each.words}."
        yield Finding(FindingName.STAGING, Severity.WARNING, text, fix, since=each.since)


# --- found by status alone ---


def _nobody_syncs(facts: DeviceFacts) -> Iterator[Finding]:
    waiting = facts.channels.conversations
    seconds = waiting.oldest_seconds or 0.0
    if facts.background.runner is not None or facts.failure is not None or not waiting.unsent:
        return
    if seconds * 1000 > UNSENT_MS_MAX:
        yield Finding(
            FindingName.SYNC,
            Severity.WARNING,
            f"{counted(waiting.unsent, 'change')} wait{_s(waiting.unsent)} here to be sent, for {ago(seconds)} at most: the "
            "background service, which would send them, does not run.",
            "`crystal sync` does it now; `crystal agent install` has it done by itself.",
            since=facts.now_ms - round(seconds * 1000),
        )


def _core(facts: DeviceFacts) -> Iterator[Finding]:
    """The Core is away: by its own last word, or because it takes nothing of what lies on the relay."""
    core, waiting = facts.core, facts.channels.conversations
    reached = facts.last.get(Activity.ROUND, 0)
    if core is None or not reached:
        return
    lived = max(
        core.seen_at, facts.last.get(Activity.PULL, 0)
    )  # what a Node takes over, the Core has written
    quiet = core.seen_at > 0 and reached - lived > CORE_QUIET_MS
    oldest = round((waiting.oldest_seconds or 0.0) * 1000)
    settled = facts.now_ms - facts.last.get(Activity.ACK, 0)
    ignored = bool(waiting.stored) and min(oldest, settled) > ORDERED_MS_MAX
    if not (quiet or ignored):
        return
    name = one_line(core.name, 40)
    seen = (
        f"was last heard of {_elapsed(core.seen_at, facts.now_ms)} ago"
        if core.seen_at
        else "was never heard of"
    )
    text = f"The Core ({name}) {seen}."
    if waiting.stored:
        text += f" {counted(waiting.stored, 'change')} of this device lie{_s(waiting.stored)} on the relay for it."
    fix = f"Wake {name}, or run `crystal sync` there. If it is gone for good: `crystal promote` makes another one the Core."
    yield Finding(FindingName.CORE, Severity.WARNING, text, fix, since=core.seen_at)


def _mirror(facts: DeviceFacts) -> Iterator[Finding]:
    """What the relay shows keeps this device from going on."""
    for name, fix in STOPPING.items():
        if name.value in facts.notices:
            detail = one_line(facts.notices[name.value], 200)
            yield Finding(FindingName.MIRROR, Severity.WARNING, f"{notice_text(name.value)} ({detail})", fix)


def _held(facts: DeviceFacts) -> Iterator[Finding]:
    if not facts.quarantined:
        return
    if Notice.HELD_REVOKED.value in facts.notices:
        fix = "`crystal devices held DEVICE` says what it is, and takes or drops it."
    elif Notice.QUARANTINED.value in facts.notices:
        fix = "`crystal repair` replays the log and compares again."
    else:
        fix = "`crystal verify --deep` says what they are. A newer version may read them; nothing of it is lost here."
    text = f"{counted(facts.quarantined, 'thing')} from the relay could not be taken; kept and counted."
    yield Finding(FindingName.HELD, Severity.WARNING, text, fix)


def _files(facts: DeviceFacts) -> Iterator[Finding]:
    if facts.files_halted:
        text = f"Files are not synced: {facts.files_halted}."
        yield Finding(FindingName.FILES, Severity.WARNING, text, "`crystal files status` says what to do.")
    if facts.files_withheld:
        text = f"{counted(facts.files_withheld, 'deletion')} of files wait{_s(facts.files_withheld)} for a person."
        yield Finding(
            FindingName.FILES,
            Severity.WARNING,
            text,
            "`crystal files confirm` lists them, and has you decide.",
        )


def _commands(facts: DeviceFacts) -> Iterator[Finding]:
    found = facts.channels.commands
    if found is None:
        return
    here, seconds = found.running + found.waiting, found.oldest_seconds or 0.0
    since = facts.now_ms - round(seconds * 1000)
    if here and facts.background.runner is None:
        text = f"{counted(here, 'command')} of other devices wait{_s(here)} here, and the background service does not run."
        fix = "`crystal agent run` does, or `crystal agent install` for good; `crystal commands list` shows them."
        yield Finding(FindingName.COMMANDS, Severity.WARNING, text, fix, since=since)
    elif found.asked and seconds * 1000 > ASKED_MS_MAX:
        text = f"{counted(found.asked, 'command')} that this device asked for, for up to {ago(seconds)}, had no result yet."
        fix = (
            "`crystal commands list` shows who was asked: wake that machine, or `crystal commands cancel ID`."
        )
        yield Finding(FindingName.COMMANDS, Severity.WARNING, text, fix, since=since)


def _database_faults(facts: DeviceFacts) -> Iterator[Finding]:
    faults = [
        *facts.others.faults,
        *([("jobs.db", facts.background.fault)] if facts.background.fault else []),
    ]
    for name, why in faults:
        text = f"{name} cannot be read: {one_line(why, 200)}"
        yield Finding(
            FindingName.DATABASE,
            Severity.WARNING,
            text,
            "`crystal doctor` says what that means, and what to do.",
        )


def _s(count: int) -> str:
    return "s" if count == 1 else ""


def _elapsed(moment: int, now: int) -> str:
    return ago(max(now - moment, 0) / 1000)

"""``crystal doctor``: looks at everything that a device needs, and says of each thing what is wrong and what mends it.

Each check stands by itself: one that fails does not hide the others. A check opens what it needs and closes it again; nothing
is changed, except that a test secret is put into the system's keyring and deleted again. Only the relay's checks use the
network.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from crystal_node.clock import now_ms
from crystal_node.errors import ExitCode, describe
from crystal_node.home import exposure
from crystal_node.keys.devicekeys import keyring_store
from crystal_node.keys.report import PassphraseState, key_report
from crystal_node.kit.state import KitState, kit_state
from crystal_node.locking import is_held
from crystal_node.settings import KeyStoreKind, Settings
from crystal_node.wording import ago, counted, one_line

if TYPE_CHECKING:
    from crystal_mirror.member import Member
    from crystal_node.device import Device

_DAY_MS = 86_400_000
_GRACE_DAYS = 7

PENDING_SECONDS_MAX = 24 * 3600.0
"""What waits longer than this for the relay is worth a warning."""

KIT_FIX = "`crystal recovery show` shows the kit, `crystal recovery verify` has you type it back."


class State(StrEnum):
    """What came of a check. Only ``FAILED`` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: its name, how it is, in words, and what to do if it is not well."""

    name: str
    state: State
    what: str
    fix: str = ""
    exit_code: int = ExitCode.OK


def examine(settings: Settings, *, offline: bool) -> list[Check]:
    """All checks, in the order in which they are to be mended."""
    checks = [*_permissions(settings), *_guarded("key store", lambda: _key_store(settings))]
    checks += _guarded("passphrase", lambda: _passphrase(settings))
    checks += _guarded("device", lambda: _device(settings))
    if offline:
        return checks
    from crystal_node.health.relaycheck import relay_checks

    return checks + _guarded("relay", lambda: relay_checks(settings))


def exit_code(checks: list[Check]) -> int:
    """That of the first check that failed; 0 if none did, warnings or not."""
    return next((check.exit_code for check in checks if check.state is State.FAILED), ExitCode.OK)


def failed(name: str, error: BaseException) -> Check:
    """A check that met an error, as any command would show it."""
    failure = describe(error)
    return Check(name, State.FAILED, failure.message, failure.hint, failure.exit_code)


def kit_reminder(settings: Settings, member: "Member") -> str | None:
    """A sentence for who has no recovery kit that works, as far as this device knows; None if there is one."""
    from crystal_node.members.rootholders import holders

    match kit_state(settings.config, member.log.root):
        case KitState.NEVER if member.root is not None or not holders(member):
            return "the recovery kit was never verified: whoever loses all devices without it loses the vault"
        case KitState.OUTDATED:
            return "the recovery kit is of a root that was replaced: it opens nothing any more"
        case _:
            return None


def _guarded(name: str, look: Callable[[], list[Check]]) -> list[Check]:
    try:
        return look()
    except Exception as error:  # noqa: BLE001  a report about what is broken goes on to the next thing
        return [failed(name, error)]


def _permissions(settings: Settings) -> Iterator[Check]:
    found = [problem for path in settings.home.private_paths() if (problem := exposure(path)) is not None]
    for problem in found:
        yield Check("permissions", State.FAILED, problem.text, problem.fix, ExitCode.STORAGE)
    if not found:
        yield Check("permissions", State.OK, f"only you can use what is in {settings.home.root}")


def _key_store(settings: Settings) -> list[Check]:
    report = key_report(settings)
    if report.left:
        fix = f"crystal keys move --to {report.kind}"
        what = f"{report.where}; a move was interrupted, and copies may be in the {report.left}"
        return [Check("key store", State.WARNING, what, fix)]
    if report.kind is KeyStoreKind.KEYRING:
        keyring_store(settings.home, settings.config.keyring_backend).probe()
        return [Check("key store", State.OK, f"{report.where}, which kept and returned a test secret")]
    return [Check("key store", State.OK, f"{report.where}: {_why_files(settings)}")]


def _why_files(settings: Settings) -> str:
    from crystal_crypto.errors import KeyStoreError

    try:
        keyring_store(settings.home).probe()
    except KeyStoreError as error:
        return f"there is no keyring to use ({error})"
    return "as was chosen; the system's keyring would work, too (`crystal keys move --to keyring`)"


def _passphrase(settings: Settings) -> list[Check]:
    """Whether it is the right one shows when the device is opened, once."""
    report = key_report(settings)
    if report.passphrase is PassphraseState.UNFINISHED:
        return [Check("passphrase", State.WARNING, report.passphrase_words, "crystal keys passphrase")]
    return [Check("passphrase", State.OK, report.passphrase_words)]


def _device(settings: Settings) -> list[Check]:
    """What needs an open device."""
    from crystal_node.device import opened

    with opened(settings) as device:
        member = device.member
        role = "Core" if member.is_core else "Node"
        what = f"a {role} of vault {member.vault.hex()[:8]}; its keys and databases open"
        return [
            Check("device", State.OK, what),
            *_guarded("outbox", lambda: [_outbox(device)]),
            *_guarded("watcher", lambda: [_watcher(device)]),
            *_guarded("device log", lambda: [_log(member)]),
            *_guarded("access", lambda: _access(device)),
            *_guarded("generation", lambda: [_generation(member)]),
            *_guarded("snapshots", lambda: [_snapshots(device)]),
            *_guarded("recovery kit", lambda: [_kit(settings, member)]),
        ]


def _outbox(device: "Device") -> Check:
    count, seconds = device.journal.outbox_count(), device.pending_seconds()
    if not count or seconds is None:
        return Check("outbox", State.OK, "empty: everything recorded here is durable")
    what = f"{counted(count, 'operation')} not durable yet, the oldest for {ago(seconds)} at most"
    if seconds <= PENDING_SECONDS_MAX:
        return Check("outbox", State.OK, what)
    return Check("outbox", State.WARNING, what, "`crystal sync` sends it; the Core has to sync, too")


def _snapshots(device: "Device") -> Check:
    from crystal_node.replication.checks import retention_finding

    found = retention_finding(device)
    return Check("snapshots", State.WARNING if found.fix else State.OK, found.what, found.fix)


def _watcher(device: "Device") -> Check:
    if is_held(device.settings.home.watch_lock):
        return Check("watcher", State.OK, "`crystal sync --watch` is running")
    what = "nothing syncs by itself: no watcher is running"
    return Check("watcher", State.WARNING, what, "crystal sync --watch")


def _log(member: "Member") -> Check:
    log = member.log
    active, gone = len(log.active()), len(log.members()) - len(log.active())
    what = f"{log.next_slot} entries, head {log.head.hex()[:16]}; {counted(active, 'device')}"
    what += f", {gone} revoked" if gone else ""
    if not log.is_active(member.device_id):
        fix = "If it still is yours, it comes back as another device: `crystal pair --new-keys --code -`."
        return Check("device log", State.FAILED, "this device was revoked", fix, ExitCode.WRONG_KEY)
    return Check("device log", State.OK, what)


def _access(device: "Device") -> list[Check]:
    """What the last round found; a relay's health page lets everybody in."""
    from crystal_node.access import Access, read_access

    if read_access(device.journal) is not Access.REFUSED:
        return []
    fix = "crystal init --role core --enroll-token -" if device.member.is_core else "crystal pair --code -"
    what = "at the last sync the relay refused this device: it was revoked, or the relay lost its tokens"
    return [Check("access", State.FAILED, what, fix, ExitCode.RELAY_REFUSED)]


def _generation(member: "Member") -> Check:
    from crystal_mirror.administer import GENERATION_DAYS_MAX
    from crystal_mirror.status import details_of

    number = member.log.generation
    entry = member.log.generation_entry(number)
    details = None if entry is None else details_of(member, entry)
    if member.key_for(number) is None:
        fix = "Run `crystal devices renew-keys` on the Core, or pair this machine again."
        return Check("generation", State.FAILED, f"this device lacks the key of generation {number}", fix, 7)
    if details is None:
        return Check("generation", State.OK, f"keys of generation {number}")
    days = (now_ms() - details.at) / _DAY_MS
    if days < 0:
        what = f"keys of generation {number}, made by a clock that was ahead of this one"
        return Check("generation", State.WARNING, what, "Set the clocks of your machines.")
    what = f"keys of generation {number}, {ago(days * 86400)} old"
    if days > GENERATION_DAYS_MAX + _GRACE_DAYS:
        return Check("generation", State.WARNING, what, "The Core renews them when it syncs: does it?")
    return Check("generation", State.OK, what)


def _kit(settings: Settings, member: "Member") -> Check:
    from crystal_node.members.rootholders import holders

    reminder = kit_reminder(settings, member)
    if reminder is not None:
        return Check("recovery kit", State.WARNING, reminder, KIT_FIX)
    if kit_state(settings.config, member.log.root) is KitState.VERIFIED:
        return Check("recovery kit", State.OK, "verified on this machine")
    others = "; ".join(f"{one_line(name, 40)} {known.words}" for name, known in holders(member))
    return Check("recovery kit", State.OK, f"this machine holds no root. As far as is known here: {others}")

"""What the relay is told after the device log has changed: whose tokens to shut out, which recovery secret counts, who may
write what a Core writes.

The log is in force without it: a revoked device reads nothing new, and nobody believes what it writes. The relay is told so
that it does not even let it in. The device that changes the log tells the relay at once; if it dies in between, the next round
of sync does it, on any device that may: the Core, or a holder of the root. Each device tells each fact once, repeats it after a
failure, and keeps in its journal what it has told, by the place in the log. A relay that was put back to an earlier state (it
lost a part of the device log) has forgotten it, and is told all of it again.

    revocations,  up to the newest one's slot           members: all but the active devices are shut out, and tokens that a
      new roots                                         holder of an old root registered; only devices that may lead by the
                                                        log may write there as a Core
    the root      by its admin key                      its recovery secret, and none before it; only its holder can tell
    grants        device by device                      its tokens may write what a Core writes

Until the relay knows the new recovery secret, the replaced root stays in the key store: it may be all that lets this device in
there. The recovery secrets of earlier roots stay: a relay that went back knows one of them, and accepts the present one from
nobody else.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from crystal_mirror.devicelog.sync import META_PUT_BACK, read_log
from crystal_mirror.membership.administration import may_have_root
from crystal_mirror.membership.cursors import read_cursors, seen_cursors
from crystal_node.device.device import Device
from crystal_node.device.keys.roots import settle_next
from crystal_node.device.runner import Runner, store_failure
from crystal_node.sync.members.duties_due import (
    META_LEADS,
    META_MEMBERS,
    META_RECOVERY,
    META_REVOKING,
    DutiesDue,
    admin_in_force,
    duties_due,
    granted,
    newest_exclusion,
    relay_lost,
    settling_due,
    told_leads,
)
from crystal_relay.client.http import HttpStore
from crystal_relay.errors import Forbidden, NotFound, RelayError, Unauthorized, WrongNumber
from crystal_relay.tokens import recovery_hash, token_hash

_SLOT_BYTES = 8


async def do_duties(device: Device, runner: Runner) -> bool:
    """Tells the relay what is due, and completes a root rotation here. Returns whether anything was due.

    Raises:
        StoreFailure: the relay could not be told. Repeat it later; nothing is lost.
        NotSetUp: this device has no relay.
        KeyStoreError, LocalStorage: the new root cannot replace the old one here yet; both are kept.
    """
    due = duties_due(device)
    if due:
        await _tell(device, runner, due)
    own, log = device.member.device_id, device.member.log
    if device.holds_root and log.is_active(own) and own not in leading_by_log(device):
        # Others cannot know it by the log, and so leave this device out.
        await raise_self(device)
    settled = settling_due(device)
    if settled:
        _settle(device)
    return bool(due) or settled


def leading(device: Device) -> set[bytes]:
    """The devices that may lead, as far as this one knows: by the log, and itself if it holds the root."""
    own = {device.member.device_id} if device.holds_root else set[bytes]()
    return leading_by_log(device) | own


def leading_by_log(device: Device) -> set[bytes]:
    """The Core, devices with a grant, and those that may have the root in force by the log."""
    member, lead = device.member, device.member.log.lead
    # §9.8-4
    may = {info.device for info in member.log.active() if info.grant or may_have_root(member, info.device)}
    return may | {lead.device} if lead is not None and not lead.is_freeze else may


async def raise_self(device: Device) -> None:
    """Lets this device's token write as a Core, by the root held here. Raises StoreFailure, but not while the relay does not
    accept that secret yet."""
    assert device.root is not None, "only who holds the root does"
    async with device.at_relay() as relay:
        try:
            with suppress(Unauthorized, Forbidden, NotFound):
                await relay.raise_token(device.member.device_id, recovery=device.root.relay_secret)
        except RelayError as error:
            raise store_failure(error) from error


async def _tell(device: Device, runner: Runner, due: DutiesDue) -> None:
    member = device.member
    # Devices that joined meanwhile must keep their tokens.
    await runner.run(read_log(member.log, member.journal, member.keys, member.notices))
    await runner.run(read_cursors(member))
    _forget_told(device)
    async with device.at_relay() as relay:
        try:
            refused = await _replace_recovery(device, relay) if due.recovery else None
            raised = set(due.leads)
            if due.members:
                named = leading(device)
                await _retain(device, relay, named)
                # A device that was granted the lead meanwhile must not lose it by this.
                await runner.run(read_log(member.log, member.journal, member.keys, member.notices))
                raised = (raised | leading(device)) - named
            for each in sorted(raised):
                await _raise(device, relay, each)
            if refused is not None:
                raise refused
        except RelayError as error:
            raise store_failure(error) from error


def _forget_told(device: Device) -> None:
    """After the relay went back, nothing counts as told."""
    if relay_lost(device):
        with device.journal.transaction() as transaction:
            for name in (META_MEMBERS, META_RECOVERY, META_LEADS, META_PUT_BACK):
                transaction.meta_set(name, None)


def _settle(device: Device) -> None:
    """Puts the new root in the old one's place in the key store; the old one goes last."""
    settle_next(device.keys, device.member.log)
    device.look_for_root()
    target = device.journal.meta_get(META_REVOKING)
    if target is not None and not device.member.log.is_active(target):
        with device.journal.transaction() as transaction:
            transaction.meta_set(META_REVOKING, None)


async def _raise(device: Device, relay: HttpStore, target: bytes) -> None:
    # A relay that was emptied has no token of it; when the device comes back, it gets one that may lead.
    with suppress(NotFound):
        await _authorised(device, lambda by: relay.raise_token(target, recovery=by))
    if target in granted(device.member.log):
        _mark(device, META_LEADS, b"".join(sorted({*told_leads(device), target})))


async def _retain(device: Device, relay: HttpStore, leads: set[bytes]) -> None:
    """Shuts out all tokens but those that the active devices use. Only ``leads`` may write as a Core."""
    log = device.member.log
    slot, active = newest_exclusion(log), [info.device for info in log.active()]
    token = device.keys.token(device.identity.id)
    # Each device reports, sealed, which token it uses: a thief may have registered another under its id.
    used = {cursor.device: cursor.token.hex() for cursor in seen_cursors(device.member) if cursor.token}
    if token is not None:
        used[device.member.device_id] = token_hash(token)
    known = {each: name for each, name in used.items() if each in active}
    await _authorised(
        device,
        lambda by: relay.retain_tokens(active, tokens=known, leads=leads, recovery=by),  # §9.8-4
        # By the root, the relay also deletes what was shut out: a thief's tokens take up no space.
        root_first=device.holds_root,
    )
    _mark(device, META_MEMBERS, slot.to_bytes(_SLOT_BYTES, "big"))
    _mark(device, META_LEADS, b"".join(sorted(leads.intersection(granted(log)))))


async def _replace_recovery(device: Device, relay: HttpStore) -> RelayError | None:
    """Replaces the recovery secret, authorised by the former one: no token may do that.

    The relay numbers replacements itself: one that was emptied and set up again begins with 0. Returns its error if it accepts
    none of the secrets here; that must not keep revoked devices in.
    """
    if not device.holds_root or device.root is None:
        return None
    wanted, number = recovery_hash(device.root.relay_secret), await relay.recovery_number()
    secrets = [root.relay_secret for root in (device.spare_root, device.root) if root is not None]
    secrets += device.keys.replaced_secrets()
    try:
        try:
            if number == 0:
                raise WrongNumber("none was replaced yet")
            await _first_of(secrets, lambda by: relay.replace_recovery(number, wanted, recovery=by))
        except WrongNumber:
            await _first_of(secrets, lambda by: relay.replace_recovery(number + 1, wanted, recovery=by))
    except (Unauthorized, Forbidden) as error:
        return error
    _mark(device, META_RECOVERY, admin_in_force(device.member.log))
    return None


async def _authorised(
    device: Device, call: Callable[[bytes | None], Awaitable[object]], *, root_first: bool = False
) -> None:
    """Calls by this device's token, else by a recovery secret: the relay may still know the former one."""
    secrets = [root.relay_secret for root in (device.root, device.spare_root) if root is not None]
    await _first_of([*secrets, None] if root_first else [None, *secrets], call)


async def _first_of(ways: Sequence[bytes | None], call: Callable[[bytes | None], Awaitable[object]]) -> None:
    """Tries one authorisation after the other. Raises what the last one raised."""
    for by in ways[:-1]:
        with suppress(Unauthorized, Forbidden):
            await call(by)
            return
    await call(ways[-1])


def _mark(device: Device, name: str, value: bytes) -> None:
    with device.journal.transaction() as transaction:
        transaction.meta_set(name, value)

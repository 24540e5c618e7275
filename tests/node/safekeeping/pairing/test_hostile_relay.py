"""A relay that watches, replays, swaps, changes, delays or withholds: it learns nothing and can only prevent."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal_crypto.identity import DeviceIdentity
from crystal_crypto.invite import Joiner
from crystal_crypto.invite_code import decode_invite
from crystal_node.base.settings import resolve
from crystal_node.device.device import opened
from crystal_relay.tokens import new_token, token_hash
from tests.node.sync.administration.test_devices import device_id
from tests.support.hostile_relay import HostileRelay, Seen, hostile_relay
from tests.support.machine import Machine, Vault
from tests.support.pairing import Side, hurried, inviting, joining, members, pair


@pytest.fixture
def hurry(tmp_path: Path) -> str:
    """For sides that wait three seconds in place of thirty for what the relay keeps back."""
    return hurried(tmp_path / "hurry", {"newcomer.ANSWER_SECONDS_MAX": 3.0, "inviter.DONE_SECONDS_MAX": 3.0})


def _nobody_was_added(vault: Vault, machine: Machine) -> None:
    vault.core.call("sync")
    assert [entry["role"] for entry in members(vault.core)] == ["core"]
    assert machine.call("status", "--json", check=False).code == 3


def _secrets_of(machine: Machine) -> dict[str, bytes]:
    settings = resolve(environment=machine.environment | {"CRYSTAL_HOME": str(machine.home)})
    with opened(settings) as device:
        identity, member = device.identity, device.member
        found = {
            "signing key": identity.signing.to_bytes(),
            "exchange key": identity.exchange.to_bytes(),
            "generation key": member.generation_key.secret,
            "vault secret": member.secret.to_bytes(),
        }
        if device.root is not None:
            found["root"] = device.root.to_bytes()
    return found


def test_a_relay_that_watches_sees_no_name_no_key_and_no_secret(vault: Vault, machine: Machine) -> None:
    machine.extra["CRYSTAL_DEVICE_NAME"] = "sailing-laptop"
    with hostile_relay(vault.relay.url) as hostile:
        vault.core.extra["CRYSTAL_RELAY_URL"] = hostile.url
        vault.core.call("devices", "rename", device_id(vault.core), "grandmother-desktop")
        inviter, newcomer = pair(vault.core, machine)
        saw = hostile.everything()
    assert newcomer.events[0]["inviter"] == "grandmother-desktop"
    assert len(hostile.seen) > 20
    shown = inviter.events[0]
    digits = next(event["digits"] for event in newcomer.events if event["event"] == "digits")
    code = decode_invite(str(shown["code"]))
    secrets = {
        "inviter's name": b"grandmother",
        "newcomer's name": b"sailing-laptop",
        "one-time secret": code.secret.to_bytes(),
        "code": str(shown["code"])[4:].encode(),
        "short invite's key": str(shown["short"]).rpartition("/")[2].encode(),
        "the same, as it is hashed": str(shown["short"]).rpartition("/")[2].replace("-", "")[:10].encode(),
        "inviter's ephemeral key": code.exchange.to_bytes(),
    }
    secrets |= _secrets_of(vault.core) | _secrets_of(machine)
    for name, secret in secrets.items():
        forms = (secret, secret.hex().encode(), base64.b64encode(secret), base64.urlsafe_b64encode(secret))
        assert not [form for form in forms if form.rstrip(b"=") in saw], name
    mailbox = b"\n".join(seen.body + seen.answer for seen in hostile.seen if "/invite/" in seen.path)
    assert mailbox
    assert str(digits).encode() not in mailbox


def _flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped": _flip,
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\x00",
}


def _both(vault: Vault, machine: Machine, hostile: HostileRelay, hurry: str) -> tuple[Side, Side]:
    """Both sides over the hostile relay, up to the right digits and on. Returns them ended."""
    over = {"CRYSTAL_RELAY_URL": hostile.url, "PYTHONPATH": hurry}
    with (
        inviting(vault.core, **over) as inviter,
        joining(machine, inviter.code()) as newcomer,
    ):
        inviter.type(str(newcomer.event("digits")["digits"]))
        newcomer.end()
        inviter.end()
    return inviter, newcomer


@pytest.mark.parametrize("change", [*_CHANGES])
@pytest.mark.parametrize("slot", ["offer", "join", "reveal"])
def test_a_relay_that_changes_a_message_prevents_the_pairing_and_nothing_else(
    vault: Vault, machine: Machine, hurry: str, slot: str, change: str
) -> None:
    def answers(seen: Seen) -> Seen:
        return seen.saying(_CHANGES[change](seen.answer)) if seen.is_get_of(slot) else seen

    with hostile_relay(vault.relay.url) as hostile:
        hostile.answers = answers
        with inviting(vault.core, CRYSTAL_RELAY_URL=hostile.url) as inviter:
            with joining(machine, inviter.code(), PYTHONPATH=hurry) as newcomer:
                assert newcomer.end() in (7, 10)
            assert "digits" not in newcomer.names
            inviter.stop()
            assert inviter.end() in (7, 130)
    _nobody_was_added(vault, machine)


@pytest.mark.parametrize("change", [*_CHANGES])
def test_a_relay_that_changes_the_welcome_leaves_the_newcomer_unset(
    vault: Vault, machine: Machine, hurry: str, change: str
) -> None:
    with hostile_relay(vault.relay.url) as hostile:
        hostile.answers = lambda seen: (
            seen.saying(_CHANGES[change](seen.answer)) if seen.is_get_of("welcome") else seen
        )
        inviter, newcomer = _both(vault, machine, hostile, hurry)
    assert newcomer.error["exit_code"] == 7
    assert inviter.events[-1]["confirmed"] is False
    assert machine.call("status", "--json", check=False).code == 3
    again, _ = pair(vault.core, machine)
    assert again.events[-1]["again"] is True


@pytest.mark.parametrize("slot", ["offer", "join", "reveal"])
def test_a_relay_that_replays_an_old_mailbox_is_noticed(
    vault: Vault, machine: Machine, hurry: str, slot: str
) -> None:
    with hostile_relay(vault.relay.url) as hostile:
        vault.core.extra["CRYSTAL_RELAY_URL"] = hostile.url
        first = Machine(machine.root.parent / "first")
        first.root.mkdir()
        pair(vault.core, first)
        old = hostile.read(slot)
        hostile.answers = lambda seen: seen.saying(old) if seen.is_get_of(slot) else seen
        with inviting(vault.core) as inviter:
            with joining(machine, inviter.code(), PYTHONPATH=hurry) as newcomer:
                assert newcomer.end() in (7, 10)
            assert "digits" not in newcomer.names
            inviter.stop()
            assert inviter.end() in (7, 130)
    assert len(members(vault.core)) == 2
    assert machine.call("status", "--json", check=False).code == 3


@pytest.mark.parametrize("slot", ["join", "reveal"])
def test_a_relay_that_swaps_the_messages_of_two_pairings_pairs_nobody(
    vault: Vault, machine: Machine, hurry: str, slot: str
) -> None:
    holder = vault.add()
    other = Machine(machine.root.parent / "other")
    other.root.mkdir()
    with hostile_relay(vault.relay.url) as hostile:
        held: dict[str, bytes] = {}

        def answers(seen: Seen) -> Seen:
            """Each mailbox's message is shown in the other one, once there are two."""
            if not seen.is_get_of(slot):
                return seen
            mailbox = seen.path.split("/")[-2]
            held[mailbox] = seen.answer
            crossed = [data for name, data in held.items() if name != mailbox]
            return seen.saying(crossed[0]) if crossed else seen.absent()

        hostile.answers = answers
        for member in (vault.core, holder):
            member.extra["CRYSTAL_RELAY_URL"] = hostile.url
        with (
            inviting(vault.core) as one,
            inviting(holder) as two,
            joining(machine, one.code(), PYTHONPATH=hurry) as first,
            joining(other, two.code(), PYTHONPATH=hurry) as second,
        ):
            assert {first.end(), second.end()} <= {7, 10}
            assert "digits" not in first.names + second.names
            for side in (one, two):
                side.stop()
                assert side.end() in (7, 130)
    del vault.core.extra["CRYSTAL_RELAY_URL"]
    vault.core.call("sync")
    assert len(members(vault.core)) == 2


def test_a_relay_that_is_slow_only_takes_longer(vault: Vault, machine: Machine) -> None:
    with hostile_relay(vault.relay.url) as hostile:
        hostile.delay = 0.2
        vault.core.extra["CRYSTAL_RELAY_URL"] = hostile.url
        inviter, _ = pair(vault.core, machine)
    assert inviter.events[-1]["confirmed"]


@pytest.mark.parametrize("slot", ["offer", "reveal"])
def test_a_relay_that_withholds_a_message_is_as_if_nobody_waited(
    vault: Vault, machine: Machine, hurry: str, slot: str
) -> None:
    with hostile_relay(vault.relay.url) as hostile:
        hostile.answers = lambda seen: seen.absent() if seen.is_get_of(slot) else seen
        with inviting(vault.core, CRYSTAL_RELAY_URL=hostile.url) as inviter:
            with joining(machine, inviter.code(), PYTHONPATH=hurry) as newcomer:
                assert newcomer.end() == 10
            inviter.stop()
            assert inviter.end() == 130
    _nobody_was_added(vault, machine)


def test_a_relay_that_hides_the_log_entry_sets_up_nothing_and_the_newcomer_is_taken_out(
    vault: Vault, machine: Machine, hurry: str
) -> None:
    core = str(members(vault.core)[0]["id"])
    with hostile_relay(vault.relay.url) as hostile:
        added: list[str] = []

        def answers(seen: Seen) -> Seen:
            if seen.method == "PUT" and "/devlog/" in seen.path and not added:
                added.append(seen.path)
            by_core = f"Bearer {core}." in seen.headers
            hidden = seen.method == "GET" and seen.path in added and not by_core
            return seen.absent() if hidden else seen

        hostile.answers = answers
        inviter, newcomer = _both(vault, machine, hostile, hurry)
    assert newcomer.error["exit_code"] == 6
    assert "device log" in newcomer.error["error"]
    assert "taken out again" in inviter.error["error"]
    _nobody_was_added(vault, machine)


def test_a_relay_with_a_photograph_of_the_code_that_joins_in_the_newcomers_place_gets_no_digits(
    vault: Vault, machine: Machine, hurry: str
) -> None:
    """It knows the one-time secret and the inviter's public key, so it can join itself; and it cannot answer the newcomer."""
    with (
        hostile_relay(vault.relay.url) as hostile,
        inviting(vault.core, CRYSTAL_RELAY_URL=hostile.url) as inviter,
    ):
        code = inviter.code()
        thief = DeviceIdentity.generate()
        middle = Joiner.begin(
            decode_invite(code),
            thief,
            name="laptop",
            system="Linux x86_64",
            token_hash=token_hash(new_token(thief.id)),
        )

        def answers(seen: Seen) -> Seen:
            if not seen.is_get_of("join"):
                return seen
            middle.open_offer(next(old.body for old in hostile.seen if old.path.endswith("/offer")))
            return seen.saying(middle.join())

        hostile.answers = answers
        with joining(machine, code, PYTHONPATH=hurry) as newcomer:
            assert newcomer.end() == 7
        assert "digits" not in newcomer.names
        assert "not who made this invite" in newcomer.error["error"]
        assert inviter.event("newcomer")["device"] == thief.id.hex()
        inviter.event("digits-wanted")
        inviter.type("no")
        assert inviter.end() == 2
    _nobody_was_added(vault, machine)

"""An invite that is typed by hand: the whole way, and each way in which it can be wrong."""

import asyncio
import functools
import json
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from crystal_crypto.identity import ExchangeKey
from crystal_crypto.invite_code import InviteCode, InviteSecret
from crystal_crypto.short_invite import ShortInvite
from crystal_node.base.home import Home
from crystal_node.base.settings import Flags, Settings, resolve
from crystal_node.device.own_relay import certificate_file
from crystal_node.safekeeping.pairing.errors import (
    Expired,
    PairingFailed,
    RelayOfTheCode,
    StrangeInviter,
    UnknownInvite,
    Used,
    Withdrawn,
)
from crystal_node.safekeeping.pairing.short_invite import fetch
from crystal_node.surfaces.cli.console.prompts import _CodeLine  # pyright: ignore[reportPrivateUsage]
from crystal_relay.invites import access_hash
from crystal_relay.limits import INVITE_KEPT_SECONDS, INVITE_SECONDS
from crystal_relay.memory import MemoryStore
from tests.support.hostile_relay import Seen, hostile_relay
from tests.support.invite_world import World, invite_world
from tests.support.machine import Machine, Vault, transcript
from tests.support.pairing import hurried, inviting
from tests.support.s3_servers.daemons import free_port
from tests.support.terminal import terminal

pytestmark = pytest.mark.timeout(400)

HIDDEN = ("mc1:", "mc2:", "mc3:")


@pytest_asyncio.fixture
async def world() -> AsyncGenerator[World]:
    store = MemoryStore()
    async with invite_world(store) as made:
        yield made
    await store.aclose()


def _settings(home: Path, relay: str | None = None) -> Settings:
    return resolve(Flags(relay_url=relay), environment={"CRYSTAL_HOME": str(home)})


async def _invite(world: World, url: str = "") -> tuple[ShortInvite, InviteCode]:
    """An open invite, kept at the relay for the short one."""
    url = url or world.relay.url
    code = InviteCode(
        bytes.fromhex(world.lead.vault), InviteSecret.generate(), ExchangeKey.generate().public, url
    )
    await world.store.create_invite(code.mailbox, access_hash(code.access))
    short = ShortInvite.generate(url)
    keys = short.derived()
    await world.store.keep_short_invite(code.mailbox, keys.place, keys.seal(code))
    return short, code


def test_what_is_typed_by_hand_pairs_two_machines_over_a_relay_in_a_home(
    tmp_path: Path, machine: Machine
) -> None:
    """With a slip first. The address that was typed names no certificate, and the machine that joined knows it."""
    first, other = machine, Machine(tmp_path / "other")
    other.root.mkdir(exist_ok=True)
    transcript(first, "The lighthouse was painted.")
    first.run("up", "--no-service", "--yes")
    first.run("sync")
    first.run("config", "set", "own_relay_port", str(free_port()))
    first.run("config", "set", "own_relay_host", "127.0.0.1")
    with inviting(first, "--here") as inviter, terminal(other, "pair", TERM="dumb") as newcomer:
        short = str(inviter.event("invite")["short"])
        assert re.fullmatch(r"127\.0\.0\.1:\d{4,5}/[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}", short)
        newcomer.until("The code that")
        newcomer.type(short[:-3] + ("0" if short[-3] != "0" else "1") + short[-2:] + "\n")
        newcomer.until("the short invite was mistyped")
        newcomer.until("The code that", times=2)
        wrong, right = "lighthouse", short.lower().replace("-", " ")
        for char in wrong + "\x7f" * len(wrong) + right + "\n":
            newcomer.type(char)
        newcomer.until(right)
        newcomer.until("Waiting for the digits")
        digits = re.search(r"\b([0-9]{3}) ([0-9]{3})\b", newcomer.shown.partition("Type these digits")[2])
        assert digits is not None
        inviter.type(digits[1] + digits[2])
        newcomer.until("[yes/no]")
        newcomer.type("yes\n")
        assert (inviter.end(), newcomer.end()) == (0, 0), newcomer.shown
    assert re.fullmatch(r"https://127[^#]+#pin=[a-z2-7]{26}", other.call("status", "--json").json["relay"])
    assert other.found("lighthouse") == ["The lighthouse was painted."]


def test_a_program_gets_both_and_may_give_either(vault: Vault, machine: Machine) -> None:
    with inviting(vault.core) as inviter:
        shown = inviter.event("invite")
        refused = machine.call("pair", "--code", str(shown["short"])[:-1], "--json", "--yes", check=False)
        assert (refused.code, "11 characters" in refused.error["error"]) == (7, True)
        started = machine.start("pair", "--code", str(shown["short"]), "--json", "--yes")
        assert started.stdout is not None
        events = map(json.loads, started.stdout)
        inviter.type(next(event["digits"] for event in events if event["event"] == "digits"))
        assert inviter.end() == 0
        started.communicate()
        assert started.returncode == 0


def test_a_relay_that_keeps_none_costs_nothing_but_the_short_one(vault: Vault, tmp_path: Path) -> None:
    """An older one, and one that fails at it."""
    nowhere = b'{"error": "no-such-route", "message": "there is nothing at that address", "hint": ""}'
    hurry = hurried(tmp_path / "hurry", {"short_invite.KEEP_SECONDS_MAX": 1.0})
    with hostile_relay(vault.relay.url) as hostile:
        for status, body in ((404, nowhere), (503, b"")):

            def answers(seen: Seen, status: int = status, body: bytes = body) -> Seen:
                if not seen.path.endswith("/short"):
                    return seen
                return replace(seen, status=status, answer=body, type="application/json")

            hostile.answers = answers
            with inviting(vault.core, CRYSTAL_RELAY_URL=hostile.url, PYTHONPATH=hurry) as inviter:
                shown = inviter.event("invite")
                assert str(shown["code"]).startswith("MC2:")
                assert shown["short"] is None
                inviter.stop()
                assert inviter.end() == 130


# --- what the newcomer is told ------------------------------------------------------------------------------------


async def test_it_opens_the_whole_invite_wherever_the_relay_is_reached(world: World, tmp_path: Path) -> None:
    elsewhere = "https://relay.example.org#pin=" + "a" * 26
    short, code = await _invite(world, elsewhere)
    assert short.address == "relay.example.org"
    assert await fetch(_settings(tmp_path, world.relay.url), short) == code
    short, code = await _invite(world)
    assert await fetch(_settings(tmp_path), short) == code


async def test_each_end_of_an_invite_is_told_apart(world: World, tmp_path: Path) -> None:
    for reason, error, said in (
        ("used", Used, "already used"),
        ("withdrawn", Withdrawn, "withdrawn"),
        ("burnt", Withdrawn, "burnt"),
    ):
        short, code = await _invite(world)
        await world.store.close_invite(code.mailbox, reason)
        with pytest.raises(error, match=said) as told:
            await fetch(_settings(tmp_path), short)
        assert told.value.hint
    short, _ = await _invite(world)
    world.clock.now += INVITE_SECONDS + 120
    with pytest.raises(Expired, match="expired 2 min ago"):
        await fetch(_settings(tmp_path), short)
    world.clock.now += INVITE_KEPT_SECONDS
    await world.sweep()
    with pytest.raises(UnknownInvite, match="no such invite at http://127"):
        await fetch(_settings(tmp_path), short)


async def test_another_relay_or_none_is_named_with_its_address(world: World, tmp_path: Path) -> None:
    short, _ = await _invite(world)
    other = ShortInvite(short.address, "0" * 10)
    with pytest.raises(UnknownInvite, match=re.escape(short.url)):
        await fetch(_settings(tmp_path), other)
    nobody = ShortInvite(f"http://127.0.0.1:{free_port()}", short.key)
    with pytest.raises(RelayOfTheCode, match=re.escape(nobody.url)) as told:
        await fetch(_settings(tmp_path), nobody)
    assert "--relay URL" in told.value.hint
    assert not (tmp_path / "config.json").exists()


async def test_a_relay_that_changes_or_swaps_what_it_keeps_is_not_believed(
    world: World, tmp_path: Path
) -> None:
    one, _ = await _invite(world)
    other, _ = await _invite(world)
    places = {one.derived().place.hex(): other.derived().place.hex()}
    with hostile_relay(world.relay.url) as hostile:
        swapped: dict[str, bytes] = {}

        def remembers(seen: Seen) -> Seen:
            swapped[seen.path.rpartition("/")[2]] = seen.answer
            return seen

        settings = _settings(tmp_path, hostile.url)
        hostile.answers = remembers
        await fetch(settings, other)
        changes: tuple[Callable[[Seen], Seen], ...] = (
            lambda seen: seen.saying(swapped[places[seen.path.rpartition("/")[2]]]),
            lambda seen: seen.saying(seen.answer[:60] + seen.answer[69:59:-1] + seen.answer[70:]),
            lambda seen: seen.saying(b'{"sealed": "", "expires_in": 1}'),
        )
        for change in changes:
            hostile.answers = change
            with pytest.raises(StrangeInviter, match="changed at the relay"):
                await fetch(settings, one)
        for answer in (b"<html>", b'{"sealed": 7}', b'{"sealed": "' + b"A" * 2_000_000 + b'"}'):
            hostile.answers = functools.partial(Seen.saying, answer=answer)
            with pytest.raises(PairingFailed):
                await fetch(settings, one)
        assert one.key.encode() not in hostile.everything()


async def test_who_answers_at_a_typed_address_gets_the_place_and_nothing_else(tmp_path: Path) -> None:
    """With a certificate of its own, which nobody has heard of."""
    asked: list[bytes] = []

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file(Home(tmp_path / "theirs")))
    server = await asyncio.start_server(stranger, "127.0.0.1", 0, ssl=context)
    short = ShortInvite(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "7KPD3MX9QW")
    async with server:
        with pytest.raises(RelayOfTheCode, match="does not speak the relay's protocol"):
            await fetch(_settings(tmp_path / "home"), short)
    (request,) = asked
    assert request.startswith(f"GET /v2/invites/{short.derived().place.hex()} HTTP/1.1\r\n".encode())
    assert b"authorization" not in request.lower()
    assert short.key.encode() not in request


# --- what is seen while it is typed -----------------------------------------------------------------------------------


def _typed(keys: str) -> tuple[str | None, str]:
    """The text, and what a terminal shows in the end."""
    line, screen = _CodeLine(HIDDEN), ""
    for byte in keys.encode():
        for char in line.take(bytes([byte])):
            screen = screen[:-1] if char == "\b" and screen.endswith(" ") else screen + char
    shown: list[str] = []
    for char in screen:
        if char == "\b":
            shown.pop()
        else:
            shown.append(char)
    return line.text, "".join(shown)


@pytest.mark.parametrize(
    "code", ["192.168.1.20:18791/7KPD-3MX9-QWHT", "mc3.example.org/7KPD", "hello", "grün"]
)
def test_an_invite_is_seen_while_it_is_typed(code: str) -> None:
    assert _typed(f"{code}\n") == (code, code)


@pytest.mark.parametrize(
    "code", ["mc1:c2VjcmV0", "mc3:c2VjcmV0", "MC1:c2VjcmV0", "  mc1:c2VjcmV0", "MC2:AAAA", "mc", "mc1"]
)
def test_a_code_that_opens_the_vault_is_never_seen(code: str) -> None:
    text, seen = _typed(f"{code}\n")
    assert (text, seen.strip()) == (code, "")


def test_slips_are_taken_back_and_keys_that_write_nothing_write_nothing() -> None:
    assert _typed("ax\x7fb\x1b[D\x1b[3~\x00c\n")[0] == "abc"
    assert _typed("wrong\x15right\n")[0] == "right"
    assert _typed("\x7f\x7fa\n")[0] == "a"
    assert _typed("\x04")[0] is None
    assert _typed("a\x04\n")[0] == "a"

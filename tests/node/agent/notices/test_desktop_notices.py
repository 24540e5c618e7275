"""Notices on the desktop: of what needs a person, once a day at most, and without a word of anybody's."""

import asyncio
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jeepney import (
    DBusAddress,
    HeaderFields,
    MessageType,
    new_error,  # pyright: ignore[reportUnknownVariableType]  jeepney has no types
    new_method_call,  # pyright: ignore[reportUnknownVariableType]
    new_method_return,  # pyright: ignore[reportUnknownVariableType]
)
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

from crystal_node.agent.health.findings import Finding, Severity
from crystal_node.agent.notices.desktop import FreeDesktop, MacOs, command, desktop_here
from crystal_node.agent.notices.job import (
    CHECK_SENTENCES,
    LINES_MAX,
    OTHER_SENTENCE,
    SENTENCES,
    SHOWN_MS_MIN,
    Notices,
    notice_sentences,
    notice_text,
    offline_checks,
)
from crystal_node.device.device import Device, opened
from crystal_node.sync.job_context import JobContext
from crystal_node.sync.syncer import Syncer
from tests.support.invited import settings_of
from tests.support.machine import Vault
from tests.support.secret_service import secret_service
from tests.support.silence import silent

_SECONDS_MAX = 10.0


@dataclass
class Screen:
    """A desktop's service that notes what it is asked to show."""

    shown: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    refuses: bool = False


@contextmanager
def _desktop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Screen]:
    screen = Screen()
    with secret_service(folder) as bus:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus.variables["DBUS_SESSION_BUS_ADDRESS"])
        connection = open_dbus_connection(bus="SESSION")
        connection.send_and_get_reply(message_bus.RequestName("org.freedesktop.Notifications"))
        thread = threading.Thread(target=_serve, args=(connection, screen), daemon=True)
        thread.start()
        yield screen
        with open_dbus_connection(bus="SESSION") as last:
            address = DBusAddress("/", bus_name="org.freedesktop.Notifications", interface="test.Stop")
            last.send_and_get_reply(new_method_call(address, "Stop"))
        thread.join(_SECONDS_MAX)
        connection.close()


def _serve(connection: Any, screen: Screen) -> None:
    while True:
        message = connection.receive()
        if message.header.message_type is not MessageType.method_call:
            continue
        method = message.header.fields[HeaderFields.member]
        if method == "Notify" and screen.refuses:
            connection.send(new_error(message, "org.freedesktop.Notifications.Error.No"))
            continue
        if method == "Notify":
            screen.shown.append(message.body)
            connection.send(new_method_return(message, "u", (7,)))
        elif method == "GetServerInformation":
            connection.send(new_method_return(message, "ssss", ("screen", "tests", "1", "1.2")))
        else:
            connection.send(new_method_return(message))
            return


async def _work(device: Device, clock: list[int]) -> JobContext:
    class Work(JobContext):
        def now_ms(self) -> int:
            return clock[0]

    async with device.online() as store:
        return Work(device, Syncer(device, store, purpose="a test"), silent)


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="there is no dbus-daemon here")
def test_a_notice_is_shown_once_a_day_at_most_and_again_when_it_could_not_be(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_800_000_000_000]

    async def main(screen: Screen) -> None:
        with opened(settings_of(vault.core)) as device:
            notices = Notices(await _work(device, clock), FreeDesktop())
            screen.refuses = True
            assert (notices.due(), await notices.run()) == (True, "")
            screen.refuses = False
            assert notices.due(), "what nobody saw was no notice"
            assert await notices.run() == "showed a notice of 1 thing"
            assert not notices.due()
            again = Notices(await _work(device, clock), FreeDesktop())
            assert not again.due(), "another process of this device knows"
            clock[0] += SHOWN_MS_MIN - 1
            assert not again.due()
            clock[0] += 1
            assert again.due()
            clock[0] -= 10 * SHOWN_MS_MIN
            assert again.due(), "a clock that went back silences nothing"

    with _desktop(tmp_path / "desktop", monkeypatch) as screen:
        asyncio.run(main(screen))
        app, _, _, title, text, actions, *_ = screen.shown[0]
        assert (app, title, actions, len(screen.shown)) == ("Memory Crystal", "Memory Crystal", [], 1)
        assert "recovery kit" in text
        monkeypatch.setenv("CRYSTAL_DESKTOP_NOTICES", "no")
        vault.core.call("config", "set", "desktop_notices", "no")
        with opened(settings_of(vault.core)) as device:
            assert not Notices(asyncio.run(_work(device, clock)), FreeDesktop()).due()


def test_without_a_desktop_nothing_is_gathered_and_nothing_fails(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/nobody")
    assert not FreeDesktop().is_there()
    assert not FreeDesktop().show("Title", "Text")
    with opened(settings_of(vault.core)) as device:
        notices = Notices(asyncio.run(_work(device, [1])), FreeDesktop())
        assert asyncio.run(notices.run()) == ""
        assert device.journal.meta_get("node.desktop-notice") is None


def test_no_word_of_a_conversation_and_no_name_comes_to_the_screen(vault: Vault) -> None:
    core = vault.core
    secret = "Zanzibar"
    core.call("remember", f"We meet in {secret}.")
    (core.home / f"{secret}.md").write_text(secret)
    core.call("sync")
    core.call("devices", "rename", "this", secret, check=False)
    core.home.chmod(0o755)
    looked = offline_checks(settings_of(core))
    core.home.chmod(0o700)
    looked += [
        Finding("databases", Severity.FAILED, f"{secret}.db is damaged"),
        Finding("jobs", Severity.FAILED, f"fell over at {secret}"),
        Finding(secret, Severity.FAILED, f"of {secret}"),
        Finding("disk", Severity.WARNING, "nearly full"),
    ]
    with opened(settings_of(core)) as device:
        found = notice_sentences(device, looked)
    assert len(found) == 5
    assert "Others than you can use what is in the memory home." in found
    text = notice_text(found)
    assert secret not in text
    assert str(core.home) not in text
    assert len(text.splitlines()) == LINES_MAX + 2
    assert "And 1 more." in text


def test_a_device_that_is_well_gives_no_notice(vault: Vault) -> None:
    from tests.support.recovery import kit_of

    vault.core.call("recovery", "verify", typed=kit_of(vault.core))
    with opened(settings_of(vault.core)) as device:
        assert notice_sentences(device, offline_checks(settings_of(vault.core))) == []


def test_every_sentence_is_one_for_a_screen() -> None:
    for sentence in (*SENTENCES.values(), *CHECK_SENTENCES.values(), OTHER_SENTENCE):
        assert sentence.endswith(".")
        assert len(sentence) < 80
        assert "{" not in sentence


def test_macos_is_given_the_text_as_an_argument_and_never_as_a_script(tmp_path: Path) -> None:
    hostile = '" & (do shell script "touch /tmp/x") & "'
    made = command("Memory Crystal", hostile)
    assert made[0] == "/usr/bin/osascript"
    assert made[-3:] == ["--", "Memory Crystal", hostile]
    assert not any(hostile in part for part in made[:-1])
    assert isinstance(desktop_here("darwin"), MacOs)
    assert desktop_here("win32") is None


@pytest.mark.skipif(shutil.which("osascript") is not None, reason="a real notice would be shown")
def test_a_mac_that_shows_nothing_is_told_so() -> None:
    assert not MacOs().show("Title", "Text")

"""Metered networks, as a NetworkManager on a bus of its own tells of them; one that does not answer well is not believed."""

import shutil
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jeepney import (
    HeaderFields,
    MessageType,
    new_error,  # pyright: ignore[reportUnknownVariableType]
    new_method_return,  # pyright: ignore[reportUnknownVariableType]
)
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

from crystal_node.agent.daemon import power
from crystal_node.agent.daemon.power import is_metered

_NAME = "org.freedesktop.NetworkManager"

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="there is no dbus-daemon here")


@contextmanager
def _bus(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    with subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address"], stdout=subprocess.PIPE, encoding="utf-8"
    ) as daemon:
        try:
            assert daemon.stdout is not None
            monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", daemon.stdout.readline().strip())
            yield
        finally:
            daemon.terminate()


@contextmanager
def _manager(*answers: object) -> Generator[None]:
    """Answers so many questions: a number is the property, a text an error's name, None is silence."""
    with open_dbus_connection(bus="SYSTEM") as connection:
        connection.send_and_get_reply(message_bus.RequestName(_NAME))
        thread = threading.Thread(target=_answer, args=(connection, list(answers)))
        thread.start()
        try:
            yield
        finally:
            thread.join(10)


def _answer(connection: Any, answers: list[object]) -> None:
    while answers:
        message = connection.receive()
        if message.header.message_type is not MessageType.method_call:
            continue
        assert message.header.fields[HeaderFields.member] == "Get"
        match answers.pop(0):
            case int(value):
                connection.send(new_method_return(message, "v", (("u", value),)))
            case str(name) if name.startswith("org."):
                connection.send(new_error(message, name))
            case str(text):
                connection.send(new_method_return(message, "s", (text,)))
            case _:
                pass


def test_a_network_is_metered_if_the_manager_says_or_guesses_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with _bus(monkeypatch), _manager(1, 3, 0, 2, 4):
        assert [is_metered() for _ in range(5)] == [True, True, False, False, False]


def test_a_manager_that_answers_with_something_else_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "_BUS_SECONDS_MAX", 0.3)
    with _bus(monkeypatch), _manager("org.freedesktop.DBus.Error.Failed", "metered", None):
        started = time.monotonic()
        assert [is_metered() for _ in range(3)] == [False, False, False]
        assert time.monotonic() - started < 5


def test_without_a_manager_or_a_bus_nothing_is_metered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with _bus(monkeypatch):
        assert not is_metered()
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    assert not is_metered()

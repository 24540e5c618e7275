"""The running agent answers searches: as the disk would, to its owner, whatever comes over the socket."""

import gc
import socket
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crystal_node.search.finding.serving import CALLERS_MAX, FinderService
from crystal_node.search.finding.wire import REQUEST_BYTES_MAX, Failure, NotUnderstood, frame, read_frame

from crystal_crypto.errors import CrystalError
from crystal_node.base import local_api
from crystal_node.base.errors import ExitCode
from crystal_node.base.settings import Settings, resolve
from crystal_node.search.finding.client import ServiceAway, ServiceRefused, ask_agent, memory_client
from crystal_node.search.finding.documents import Depth, SearchRequest, ShowRequest
from tests.support.machine import Machine, Vault

TEXT = "The uploader's retry budget went from 3 to 9."


@pytest.fixture
def core(vault: Vault) -> Machine:
    vault.core.call("remember", TEXT)
    vault.core.call("sync")
    return vault.core


def settings_of(machine: Machine) -> Settings:
    return resolve(environment=machine.environment | {"CRYSTAL_HOME": str(machine.home)})


@contextmanager
def served(machine: Machine) -> Generator[Settings]:
    settings = settings_of(machine)
    service = FinderService(lambda: settings)
    assert service.start() == ""
    try:
        yield settings
    finally:
        service.stop()
    assert not settings.home.finder_socket.exists()


def search(settings: Settings, query: str = "retry budget") -> list[str]:
    with memory_client(settings) as found:
        return [hit.text for hit in found.search(SearchRequest(query=query, depth=Depth.FAST)).results]


def raw(settings: Settings, data: bytes) -> bytes:
    """What comes back for these bytes."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(30)
        with local_api.reached(str(settings.home.finder_socket)) as name:
            line.connect(str(name))
        try:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            return line.makefile("rb").read()
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_the_answers_are_those_of_the_disk(core: Machine) -> None:
    settings = settings_of(core)
    request = SearchRequest(query="retry budget", depth=Depth.FAST, explain=True)
    with memory_client(settings) as here:
        alone = here.search(request)
        whole = here.show(ShowRequest(id=alone.results[0].id))
    with served(core), memory_client(settings) as asked:
        answered = asked.search(request)
        assert msgspec.structs.replace(answered, took_ms=0.0) == msgspec.structs.replace(alone, took_ms=0.0)
        assert asked.show(ShowRequest(id=alone.results[0].id)) == whole
        assert asked._here is None, "the agent answered"  # pyright: ignore[reportPrivateUsage]


def test_errors_are_the_same_with_an_agent_and_without(core: Machine) -> None:
    settings = settings_of(core)

    def codes() -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        with memory_client(settings) as asked:
            for ask in (
                lambda: asked.search(SearchRequest(query="x", since="whenever", depth=Depth.FAST)),
                lambda: asked.search(SearchRequest(query="   ", depth=Depth.FAST)),
                lambda: asked.show(ShowRequest(id="0" * 64)),
                lambda: asked.show(ShowRequest(id="no id at all")),
            ):
                with pytest.raises(CrystalError) as raised:
                    ask()
                found.append((int(raised.value.exit_code), str(raised.value)))
        return found

    alone = codes()
    with served(core):
        assert codes() == alone


def test_what_is_not_understood_ends_and_the_next_is_answered(core: Machine) -> None:
    with served(core) as settings:
        for rubbish in (
            b"",
            b"\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"crystal-find/2 search 2\n{}",
            b"crystal-find/1 search -1\n",
            b"crystal-find/1 search 99999999999999999999\n",
            b"crystal-find/1 search %d\n" % (REQUEST_BYTES_MAX + 1),
            b"crystal-find/1 search 50\n{}",
            b"x" * 100_000,
        ):
            assert raw(settings, rubbish) == b""
        for verb, body, told in (
            ("search", b"rubbish", "the body is no JSON"),
            ("search", b"\xff", "the body is no JSON"),
            ("search", b"{}", "`query` is missing"),
            ("search", b'{"query": "x", "kind": "memo"}', "one of conversation, memory, document"),
            ("purge", b"{}", "does not know 'purge'"),
            ("show", b'{"id": 7}', "`id` has to be a text of 8 to 64 characters"),
        ):
            word, said = read_answer(raw(settings, frame(verb, body)))
            assert word == "failed"
            failure = msgspec.json.decode(said, type=Failure)
            assert failure.exit_code != ExitCode.UNEXPECTED or verb == "purge"
            assert told in failure.error
        assert search(settings) == [TEXT]


def read_answer(data: bytes) -> tuple[str, bytes]:
    import io

    return read_frame(io.BytesIO(data), 1 << 20)


def test_a_caller_who_says_nothing_keeps_nobody_waiting_for_long(core: Machine) -> None:
    with served(core) as settings:
        silent = [socket.socket(socket.AF_UNIX) for _ in range(CALLERS_MAX + 2)]
        try:
            for line in silent:
                with local_api.reached(str(settings.home.finder_socket)) as name:
                    line.connect(str(name))
            assert search(settings) == [TEXT]
        finally:
            for line in silent:
                line.close()


def test_many_ask_at_once(core: Machine) -> None:
    with served(core) as settings, ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(search, settings) for _ in range(64)]
        assert [each.result() for each in asked] == [[TEXT]] * 64


def test_who_waits_for_his_turn_when_the_agent_ends_is_hung_up_on(
    core: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(core)
    service = FinderService(lambda: settings)
    callers: list[socket.socket] = []
    submit = ThreadPoolExecutor.submit

    def noting(pool: ThreadPoolExecutor, work: Any, caller: socket.socket) -> Any:
        callers.append(caller)
        return submit(pool, work, caller)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", noting)
    assert service.start() == ""
    lines = [socket.socket(socket.AF_UNIX) for _ in range(CALLERS_MAX + 4)]
    gc.disable()  # what only it would close is not closed
    try:
        for line in lines:
            line.settimeout(30)
            with local_api.reached(str(settings.home.finder_socket)) as name:
                line.connect(str(name))  # and says nothing
        deadline = time.monotonic() + 30
        while len(callers) < len(lines) and time.monotonic() < deadline:
            time.sleep(0.01)
        service.stop()
        assert len(callers) == len(lines)
        assert all(caller.fileno() == -1 for caller in callers)
        assert all(line.recv(1) == b"" for line in lines)
    finally:
        gc.enable()
        for line in lines:
            line.close()


def test_a_memory_put_in_the_place_of_another_is_the_one_that_answers(core: Machine, tmp_path: Path) -> None:
    with served(core) as settings:
        assert search(settings) == [TEXT]
        database = settings.home.database
        copy = tmp_path / "copy.db"
        core.call("remember", "Another retry budget is not shared.")
        core.call("sync")
        assert len(search(settings)) == 2
        import apsw

        source = apsw.Connection(str(database))
        target = apsw.Connection(str(copy))
        with target.backup("main", source, "main") as backup:
            backup.step()
        target.close()
        source.close()
        before = database.stat().st_ino
        copy.replace(database)
        assert database.stat().st_ino != before
        assert len(search(settings)) == 2


def test_without_an_agent_or_with_one_that_dies_the_disk_answers(core: Machine) -> None:
    settings = settings_of(core)
    with pytest.raises(ServiceAway):
        ask_agent(settings, "search", b"{}")
    listening = socket.socket(socket.AF_UNIX)
    with local_api.reached(str(settings.home.finder_socket)) as name:
        listening.bind(str(name))
    listening.listen()
    listening.settimeout(30)

    def dies() -> None:
        line, _ = listening.accept()
        line.recv(10)
        line.sendall(b"crystal-find/1 ok 100\n{")
        line.close()

    thread = threading.Thread(target=dies)
    thread.start()
    try:
        assert search(settings) == [TEXT]
    finally:
        thread.join()
        listening.close()
    assert search(settings) == [TEXT], "a socket that nobody listens at"


def test_a_home_whose_path_is_too_long_for_a_socket_is_answered_all_the_same(
    core: Machine, tmp_path: Path
) -> None:
    longer = tmp_path / ("long" * 30)
    core.home.parent.rename(longer)
    with served(Machine(longer, core.extra)) as settings, memory_client(settings) as asked:
        request = SearchRequest(query="retry budget", depth=Depth.FAST)
        assert [hit.text for hit in asked.search(request).results] == [TEXT]
        assert asked._here is None, "the agent answered"


def test_where_a_folder_cannot_be_named_by_its_number_the_disk_answers(
    core: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_node.base.local_api.sys.platform", "darwin")
    longer = tmp_path / ("long" * 30)
    core.home.parent.rename(longer)
    settings = settings_of(Machine(longer, core.extra))
    service = FinderService(lambda: settings)
    assert "too long" in service.start()
    service.stop()
    assert search(settings) == [TEXT]


def test_a_message_is_read_as_it_was_framed() -> None:
    assert read_answer(frame("ok", b"{}")) == ("ok", b"{}")
    with pytest.raises(NotUnderstood):
        read_answer(frame("ok", b"{}")[:-1])
    error = ServiceRefused(Failure("no", "do", 10))
    assert (str(error), error.hint, error.exit_code) == ("no", "do", 10)

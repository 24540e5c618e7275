"""The background service answers on its socket: as the disk would, to its owner, whatever comes over it."""

import json
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from crystal_crypto.errors import CrystalError
from crystal_node.base import local_api
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import ExitCode
from crystal_node.base.local_api import NotUnderstood, ServiceAway, ask, short_name
from crystal_node.base.settings import Settings
from crystal_node.search.conversation_documents import (
    ConversationFilter,
    ConversationRequest,
    ConversationsRequest,
)
from crystal_node.search.finding.client import ServiceRefused, decoded_answer, memory_client
from crystal_node.search.finding.documents import Depth, SearchDocument, SearchRequest, ShowRequest
from crystal_node.search.recall.database import RecallDatabase
from crystal_node.surfaces.gateway.limits import BODY_BYTES_MAX, LOCAL_CALLERS_MAX
from crystal_node.surfaces.gateway.local import LocalApi
from tests.support.local_api import NoJobs, served, settings_of
from tests.support.machine import Machine, Vault, transcript

TEXT = "The uploader's retry budget went from 3 to 9."


@pytest.fixture
def core(vault: Vault) -> Machine:
    vault.core.call("remember", TEXT, "--scope", "everywhere")
    vault.core.call("sync")
    return vault.core


def search(settings: Settings, query: str = "retry budget") -> list[str]:
    with memory_client(settings) as found:
        return [hit.text for hit in found.search(SearchRequest(query=query, depth=Depth.FAST)).results]


def connected(settings: Settings) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(30)
    with short_name(local_api.socket_path(str(settings.home.root))) as name:
        line.connect(str(name))
    return line


def raw(settings: Settings, data: bytes) -> bytes:
    """What comes back for these bytes."""
    with connected(settings) as line:
        try:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            return line.makefile("rb").read()
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_the_answers_are_those_of_the_disk(core: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, now = settings_of(core), now_ms()
    monkeypatch.setattr("crystal_node.search.finding.finder.now_ms", lambda: now)  # scores age by the second
    request = SearchRequest(query="retry budget", depth=Depth.FAST, explain=True)
    with memory_client(settings) as here:
        alone = here.search(request)
        whole = here.show(ShowRequest(id=alone.results[0].id))
    with served(core), memory_client(settings) as asked:
        answered = asked.search(request)
        assert msgspec.structs.replace(answered, took_ms=0.0) == msgspec.structs.replace(alone, took_ms=0.0)
        assert asked.show(ShowRequest(id=alone.results[0].id)) == whole
        assert asked._here is None, "the agent answered"  # pyright: ignore[reportPrivateUsage]


def test_conversations_are_listed_and_read_as_from_the_disk(core: Machine) -> None:
    transcript(core, "Why does the importer wait?", "And for how long?", name="asked")
    core.call("capture")
    settings, request = settings_of(core), ConversationsRequest(tool="claude-code", limit=5)
    with memory_client(settings) as here:
        listed = here.conversations(request)
        (one,) = listed.conversations
        whole = here.conversation(ConversationRequest(id=one.id))
        days = here.activity(ConversationFilter(device=one.device))
    assert (one.title, len(whole.messages), days.total) == ("Why does the importer wait?", 2, 1)
    with served(core), memory_client(settings) as asked:
        assert asked.conversations(request) == listed
        assert asked.conversation(ConversationRequest(id=one.id)) == whole
        assert asked.activity(ConversationFilter(device=one.device)) == days
        with pytest.raises(ServiceRefused, match="that conversation is not in this memory"):
            asked.conversation(ConversationRequest(id="0" * 32))
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
        head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for rubbish in (
            b"",
            b"\n",
            b"crystal-find/1 search 2\n{}",
            b"GET / HTTP/9.9\r\n\r\n",
            head + b"Content-Length: -1\r\n\r\n",
            head + b"Content-Length: 50\r\n\r\n{}",
            head + b"Content-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
            b"x" * 100_000,
        ):
            answer = raw(settings, rubbish)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        for method, target, body, told in (
            ("POST", "/api/search", b"rubbish", "the body is no JSON"),
            ("POST", "/api/search", b"\xff", "the body is no JSON"),
            ("POST", "/api/search", b"{}", "`query` is missing"),
            (
                "POST",
                "/api/search",
                b'{"query": "x", "kind": "memo"}',
                "one of conversation, memory, document",
            ),
            ("POST", "/api/search", b" " * (BODY_BYTES_MAX + 1), "a body has at most"),
            ("GET", "/api/show/7", b"", "an id and its place have 8 to 73 characters"),
            ("GET", "/api/show/77777777?before=99", b"", "`before` has to be a whole number from 0 to 50"),
        ):
            refused = ask(str(settings.home.root), method, target, body, seconds=30)
            assert not refused.good and refused.exit_code not in (0, ExitCode.UNEXPECTED)
            with pytest.raises(ServiceRefused) as raised:
                decoded_answer(refused, SearchDocument)
            assert told in str(raised.value)
        for method, target in (("POST", "/api/purge"), ("GET", "/api/search")):
            # Another version may have it: the caller does without.
            unknown = ask(str(settings.home.root), method, target, b"{}", seconds=30)
            with pytest.raises(NotUnderstood):
                decoded_answer(unknown, SearchDocument)
        assert search(settings) == [TEXT]


def test_a_caller_who_says_nothing_keeps_nobody_waiting_for_long(core: Machine) -> None:
    with served(core) as settings:
        silent = [connected(settings) for _ in range(LOCAL_CALLERS_MAX // 2)]
        try:
            assert search(settings) == [TEXT]
        finally:
            for line in silent:
                line.close()


def test_many_ask_at_once(core: Machine) -> None:
    with served(core) as settings, ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(search, settings) for _ in range(64)]
        assert [each.result() for each in asked] == [[TEXT]] * 64


def test_those_who_wait_when_the_service_ends_are_hung_up_on(core: Machine) -> None:
    settings = settings_of(core)
    service = LocalApi(lambda: settings, NoJobs())
    assert service.start() == ""
    lines = [connected(settings) for _ in range(12)]  # which say nothing
    try:
        assert search(settings) == [TEXT]
        service.stop()
        assert all(line.recv(1) == b"" for line in lines)
    finally:
        for line in lines:
            line.close()
    service.stop()
    assert search(settings) == [TEXT]


def test_a_service_of_another_version_is_done_without(core: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(core) as settings:
        monkeypatch.setattr(local_api, "VERSION", b"2")
        with pytest.raises(NotUnderstood, match="another version"):
            ask(str(settings.home.root), "GET", "/api/jobs", seconds=30)
        with memory_client(settings) as asked:
            request = SearchRequest(query="retry budget", depth=Depth.FAST)
            assert [hit.text for hit in asked.search(request).results] == [TEXT]
            assert asked._here is not None, "the disk answered"  # pyright: ignore[reportPrivateUsage]


def test_another_user_is_hung_up_on(core: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(core) as settings:
        own = os.geteuid()
        monkeypatch.setattr("crystal_node.surfaces.gateway.local.os.geteuid", lambda: own + 1)
        with pytest.raises((NotUnderstood, OSError)):
            ask(str(settings.home.root), "GET", "/api/jobs", seconds=30)
        monkeypatch.undo()
        assert search(settings) == [TEXT]


def test_what_a_hook_went_without_is_given_to_the_next(
    core: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "s",
        "prompt": "the retry budget",
    }
    body = json.dumps(told).encode()
    came, struck = threading.Event(), threading.Event()
    note, strike = RecallDatabase.note, RecallDatabase.strike

    def noted(database: RecallDatabase, session: str, ids: Any, now_ms: int) -> None:
        note(database, session, ids, now_ms)
        assert came.wait(30)

    def stricken(database: RecallDatabase, session: str, ids: Any) -> None:
        strike(database, session, ids)
        struck.set()

    monkeypatch.setattr(RecallDatabase, "note", noted)
    monkeypatch.setattr(RecallDatabase, "strike", stricken)
    with served(core) as settings:
        with connected(settings) as line:
            line.sendall(
                b"POST /api/recall HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )
        came.set()
        assert struck.wait(30)
        answer = ask(str(settings.home.root), "POST", "/api/recall", body, seconds=30)
        assert b"went from 3 to 9" in answer.body
        again = ask(str(settings.home.root), "POST", "/api/recall", body, seconds=30)
        assert again.good and again.body == b""


def test_the_device_is_shown_beside_the_memory(core: Machine) -> None:
    with served(core) as settings:
        answer = ask(str(settings.home.root), "GET", "/api/status", seconds=60)
        assert answer.good and msgspec.json.decode(answer.body)["memory"]["memories"] == 1


def test_a_memory_put_in_the_place_of_another_is_the_one_that_answers(core: Machine, tmp_path: Path) -> None:
    with served(core) as settings:
        assert search(settings) == [TEXT]
        database = settings.home.database
        copy = tmp_path / "copy.db"
        core.call("remember", "Another retry budget is not shared.")
        core.call("sync")
        assert len(search(settings)) == 2
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


def test_without_a_service_or_with_one_that_dies_the_disk_answers(core: Machine) -> None:
    settings = settings_of(core)
    with pytest.raises(ServiceAway):
        ask(str(settings.home.root), "GET", "/api/jobs", seconds=30)
    listening = socket.socket(socket.AF_UNIX)
    with short_name(local_api.socket_path(str(settings.home.root))) as name:
        listening.bind(str(name))
    listening.listen()
    listening.settimeout(30)

    def dies() -> None:
        line, _ = listening.accept()
        line.recv(10)
        line.sendall(b"HTTP/1.1 200 OK\r\ncrystal-api: 1\r\nContent-Length: 100\r\n\r\n{")
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
        assert asked._here is None, "the agent answered"  # pyright: ignore[reportPrivateUsage]


def test_where_a_folder_cannot_be_named_by_its_number_the_disk_answers(
    core: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_node.base.local_api.sys.platform", "darwin")
    longer = tmp_path / ("long" * 30)
    core.home.parent.rename(longer)
    settings = settings_of(Machine(longer, core.extra))
    service = LocalApi(lambda: settings, NoJobs())
    assert "too long" in service.start()
    service.stop()
    assert search(settings) == [TEXT]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncrystal-api: 1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncrystal-api: 1\r\nContent-Length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncrystal-api: 1\r\nContent-Length: 99999999999\r\n\r\n{}",
        b"HTTP/1.1 two OK\r\ncrystal-api: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"crystal-find/1 ok 2\n{}",
        b"x" * 100_000,
    ],
)
def test_an_answer_that_is_none_is_refused(tmp_path: Path, answer: bytes) -> None:
    path = Path(local_api.socket_path(str(tmp_path)))
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening, short_name(str(path)) as name:
        listening.bind(str(name))
        listening.listen()

        def answers() -> None:
            line, _ = listening.accept()
            with line:
                line.recv(65536)
                line.sendall(answer)

        thread = threading.Thread(target=answers)
        thread.start()
        with pytest.raises((NotUnderstood, ConnectionResetError)):
            ask(str(tmp_path), "GET", "/api/jobs", seconds=30)
        thread.join()


def test_no_answer_in_time_is_told_from_nobody(tmp_path: Path) -> None:
    path = Path(local_api.socket_path(str(tmp_path)))
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening, short_name(str(path)) as name:
        listening.bind(str(name))
        listening.listen()
        with pytest.raises(TimeoutError):
            ask(str(tmp_path), "GET", "/api/jobs", seconds=0.05)

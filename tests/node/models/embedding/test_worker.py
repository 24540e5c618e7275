"""The built-in model in a process of its own: each request gets its answer or a plain error, and no process is left."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

from crystal_core.embed import worker as worker_module
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.embed.port import EmbedderClosed, EmbedderUnavailable, ModelDamaged
from crystal_core.embed.worker import (
    FRAME_BYTES_MAX,
    EmbeddingReply,
    Failed,
    Opening,
    QueryRequest,
    StoredRequest,
    receive,
    run,
    send,
    to_bytes,
)
from crystal_node.models.embedding import worker as owner_module
from crystal_node.models.embedding.worker import REQUEST_BYTES_MAX, REQUEST_TEXTS_MAX, WorkerEmbedder

TEXTS = ["The lamp of the pier is lit at dusk.", "Bread needs time.", "\ud800 half a pair"]
STILL = (sys.executable, "-P", "-c", "import time; time.sleep(600)")


@pytest.fixture
def embedder() -> Generator[WorkerEmbedder]:
    with WorkerEmbedder(threads=1) as made:
        yield made
        process = made.process
    until(lambda: process is None or ended(process), "no child is left")


def child(embedder: WorkerEmbedder) -> "subprocess.Popen[bytes]":
    assert embedder.process is not None
    return embedder.process


def loaded(embedder: WorkerEmbedder) -> bool:
    return embedder.loaded


def ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it has ended and is no zombie."""
    return process.returncode is not None


def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_nothing_runs_before_it_is_needed_and_vectors_are_those_of_the_model(
    embedder: WorkerEmbedder,
) -> None:
    with BuiltinEmbedder(threads=1) as here:
        assert (embedder.identity, embedder.dimensions) == (here.identity, here.dimensions)
        assert not loaded(embedder)
        assert embedder.process is None
        assert embedder.embed_windows(TEXTS) == here.embed_windows(TEXTS)
        assert loaded(embedder)
        assert np.array_equal(embedder.embed_query("lamp"), here.embed_query("lamp"))


def test_many_texts_go_over_in_several_requests_and_come_back_in_order(embedder: WorkerEmbedder) -> None:
    texts = [f"remark {number}" for number in range(REQUEST_TEXTS_MAX + 3)]
    texts.insert(5, " " * REQUEST_BYTES_MAX)
    with BuiltinEmbedder() as here:
        assert embedder.embed_windows(texts) == here.embed_windows(texts)


def test_one_that_was_killed_while_idle_is_replaced_and_leaves_no_zombie(embedder: WorkerEmbedder) -> None:
    expected = embedder.embed_query("lamp")
    first = child(embedder)
    first.kill()
    assert np.array_equal(embedder.embed_query("lamp"), expected)
    second = child(embedder)
    assert second.pid != first.pid
    second.kill()
    until(lambda: ended(first) and ended(second), "both were waited for, although nobody asks")
    assert not loaded(embedder)


def test_one_that_is_killed_at_work_is_replaced(embedder: WorkerEmbedder) -> None:
    texts = [f"{number} " + "what was decided about the outbox " * 30 for number in range(30)]
    embedder.embed_query("ready")
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(embedder.embed_windows, texts)
        time.sleep(0.2)
        child(embedder).kill()
        with BuiltinEmbedder() as here:
            assert under_way.result(60) == here.embed_windows(texts)


def test_one_that_dies_with_each_question_is_an_error_and_no_circle() -> None:
    with WorkerEmbedder(command=(sys.executable, "-P", "-c", "")) as embedder:
        with pytest.raises(EmbedderUnavailable, match="ended without an answer") as caught:
            embedder.embed_query("lamp")
        assert "search works by keyword" in caught.value.hint
        assert not loaded(embedder)


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xffrest",
        b"\0\0\0\x05hello",
        b"\0\0\0\x01\xc0",
        b"\0\0",
    ],
)
def test_what_is_no_answer_is_an_error(said: bytes) -> None:
    command = (
        *(sys.executable, "-P", "-c"),
        f"import sys, time; sys.stdout.buffer.write({said!r}); sys.stdout.flush(); sys.stdin.close(); time.sleep(0.5)",
    )
    with WorkerEmbedder(command=command) as embedder, pytest.raises(EmbedderUnavailable):
        embedder.embed_windows(["lamp"])


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with WorkerEmbedder(command=(str(tmp_path / "none"),)) as embedder:
        with pytest.raises(EmbedderUnavailable, match="cannot be started"):
            embedder.embed_windows(["lamp"])
        embedder.release()


@pytest.mark.parametrize(
    "texts", [["lamp"], ["x" * REQUEST_BYTES_MAX]], ids=["small", "more than a pipe holds"]
)
def test_one_that_hangs_is_ended_and_named(texts: list[str]) -> None:
    with WorkerEmbedder(command=STILL, answer_seconds=0.3 - 0.004 * len(texts[0])) as embedder:
        with pytest.raises(EmbedderUnavailable, match="did not answer within 0 s"):
            embedder.embed_windows(texts)
        until(lambda: ended(child(embedder)), "it was ended")


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_the_answer_to_a_question_that_was_given_up_is_not_taken_for_the_next_ones(
    embedder: WorkerEmbedder, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fails(_: object) -> bytes:
        raise error

    expected = embedder.embed_query("bread")
    first = child(embedder)
    with monkeypatch.context() as patch:
        patch.setattr(owner_module, "receive", fails)
        with pytest.raises(error):
            embedder.embed_query("lamp")
    assert np.array_equal(embedder.embed_query("bread"), expected)
    until(lambda: ended(first), "it was ended")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows stops no process")
def test_one_that_stopped_after_it_had_answered_is_ended_and_the_next_question_answered() -> None:
    with WorkerEmbedder(threads=1, answer_seconds=5.0) as embedder:
        expected = embedder.embed_query("lamp")
        child(embedder).send_signal(signal.SIGSTOP)
        with pytest.raises(EmbedderUnavailable, match="did not answer within 5 s"):
            embedder.embed_query("lamp")
        assert np.array_equal(embedder.embed_query("lamp"), expected)


def test_release_ends_it_and_the_next_question_starts_another(embedder: WorkerEmbedder) -> None:
    before = descriptors()
    for _ in range(3):
        embedder.embed_query("lamp")
        assert loaded(embedder)
        process = child(embedder)
        embedder.release()
        assert not loaded(embedder)
        process.wait(20)
    until(lambda: descriptors() <= before, "its pipes were closed")
    embedder.release()


def descriptors() -> int:
    """How many; 0 where the system does not list them."""
    listed = Path("/dev/fd")
    return len(list(listed.iterdir())) if listed.is_dir() else 0


def test_what_is_under_way_at_a_release_is_answered(embedder: WorkerEmbedder) -> None:
    texts = [f"{number} " + "what was decided about the outbox " * 30 for number in range(20)]
    embedder.embed_query("ready")
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(embedder.embed_windows, texts)
        time.sleep(0.2)
        process = child(embedder)
        embedder.release()
        assert not under_way.done()
        assert len(under_way.result(60)) == len(texts)
    until(lambda: ended(process), "it was ended when it had answered")


def test_what_is_under_way_at_the_end_is_given_up(embedder: WorkerEmbedder) -> None:
    texts = ["what was decided about the outbox " * 1000] * 100
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(embedder.embed_windows, texts)
        time.sleep(0.2)
        process = child(embedder)
        embedder.close()
        with pytest.raises(EmbedderClosed):
            under_way.result(10)
    until(lambda: ended(process), "it was ended")


def test_several_ask_at_once_and_one_process_answers_all(embedder: WorkerEmbedder) -> None:
    queries = [f"lamp {number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool, BuiltinEmbedder(threads=1) as here:
        embedder.embed_query("ready")
        process = child(embedder)
        found = list(pool.map(embedder.embed_query, queries))
        assert child(embedder) is process
        for query, vector in zip(queries, found, strict=True):
            assert np.array_equal(vector, here.embed_query(query))


def test_questions_and_releases_at_once_all_get_answers(embedder: WorkerEmbedder) -> None:
    over = threading.Event()

    def releasing() -> None:
        while not over.wait(0.4):
            embedder.release()

    thread = threading.Thread(target=releasing)
    thread.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(embedder.embed_query, TEXTS * 10))) == 3 * 10
    finally:
        over.set()
        thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_signals_that_stop_a_whole_service_leave_it_to_the_service(embedder: WorkerEmbedder) -> None:
    embedder.embed_query("lamp")
    before = child(embedder)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        before.send_signal(number)
    embedder.embed_query("lamp")
    assert child(embedder) is before


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no list of processes here")
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit()"])
def test_it_ends_with_its_service_however_that_ends(end: str) -> None:
    code = (
        "import os, sys\n"
        "from crystal_node.models.embedding.worker import WorkerEmbedder\n"
        "embedder = WorkerEmbedder(threads=1)\n"
        "embedder.embed_query('ready')\n"
        "print(embedder.process.pid, flush=True)\n"
        f"{end}\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, timeout=60, check=False, text=True
    )
    number = int(done.stdout)
    until(lambda: not _runs(number), "it ended")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no list of processes here")
def test_it_ends_with_its_service_amid_a_request() -> None:
    code = (
        "import os, threading, time\n"
        "from crystal_node.models.embedding.worker import REQUEST_BYTES_MAX, WorkerEmbedder\n"
        "embedder = WorkerEmbedder(threads=1)\n"
        "embedder.embed_query('ready')\n"
        "texts = ['x1 ' * (REQUEST_BYTES_MAX // 3)]\n"
        "threading.Thread(target=embedder.embed_windows, args=(texts,), daemon=True).start()\n"
        "time.sleep(0.5)\n"
        "print(embedder.process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, timeout=60, check=False, text=True
    )
    number = int(done.stdout)
    try:
        until(lambda: not _runs(number), "it ended, with most of a minute's work before it", 10)
    finally:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def _runs(number: int) -> bool:
    """Whether it runs; a zombie, for which another process has to wait, does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_damaged_model_is_the_error_that_it_always_was(tmp_path: Path) -> None:
    model = Path(worker_module.__file__).parent / "model"
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x55")
    with WorkerEmbedder(directory=tmp_path) as embedder:
        with pytest.raises(ModelDamaged, match=r"weights\.bin") as caught:
            embedder.embed_query("lamp")
        assert caught.value.hint == ModelDamaged.hint
        assert not loaded(embedder)
        until(lambda: ended(child(embedder)), "it was ended, though nobody releases it")
        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(embedder.embed_windows, ["lamp"]) for _ in range(4)]:
                with pytest.raises(ModelDamaged):
                    each.result(30)


def replies(*messages: msgspec.Struct) -> list[EmbeddingReply]:
    """A worker's replies to these frames."""
    asked, said = io.BytesIO(), io.BytesIO()
    for message in messages:
        send(asked, message)
    asked.seek(0)
    run(lambda: receive(asked), said)
    said.seek(0)
    found: list[EmbeddingReply] = []
    while (data := receive(said)) is not None:
        found.append(msgspec.msgpack.decode(data, type=EmbeddingReply))
    return found


def test_an_installation_that_changed_under_the_service_makes_no_vectors() -> None:
    opening = Opening("all-MiniLM-L6-v2/int8/000000000000/384/254-64-16", 1, "")
    for reply in replies(opening, QueryRequest(b"lamp"), StoredRequest([b"lamp"])):
        assert isinstance(reply, Failed)
        assert "another embedding model is installed" in reply.message
        assert "crystal agent stop" in reply.hint


def test_a_frame_beyond_the_limit_is_neither_sent_nor_read() -> None:
    with pytest.raises(ValueError, match="too long"):
        send(io.BytesIO(), QueryRequest(b"x" * FRAME_BYTES_MAX))
    with pytest.raises(ValueError, match="too long"):
        receive(io.BytesIO((FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"rest"))
    assert to_bytes("\ud800") == b"\xed\xa0\x80"
    assert replies() == []

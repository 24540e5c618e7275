"""Servers that mean ill: whoever stands where a language model was expected costs an error, and gets no key to see."""

import asyncio
import os
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from socket import socket

import pytest

from crystal_core.llm.errors import LlmError, MalformedAnswer, Refused
from crystal_core.llm.port import Completion, Prompt
from crystal_node.base.errors import BadConfig
from crystal_node.base.settings import resolve
from crystal_node.models.llm import claude_cli
from crystal_node.models.llm.discovery import LOOK_SECONDS_MAX, find_llm
from crystal_node.models.llm.openai import compatible

MIB = 2**20


@contextmanager
def answering(send: Callable[[socket], None]) -> Generator[str]:
    """A server that answers each request by whatever ``send`` does with the connection."""
    with closing(socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)

        def serve() -> None:
            with suppress(OSError):  # it is closed at the end
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.recv(64 * 1024)
                        send(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


def whole(body: bytes, *headers: str) -> Callable[[socket], None]:
    head = "\r\n".join(("HTTP/1.1 200 OK", *headers, f"Content-Length: {len(body)}", "", ""))
    return lambda connection: connection.sendall(head.encode() + body)


def asked(url: str) -> Completion:
    async def main() -> Completion:
        llm = compatible(url, "m")
        try:
            return await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=10)
        finally:
            await llm.aclose()

    return asyncio.run(main())


def test_a_bomb_of_packed_bytes_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(64)) + packer.flush()
    with answering(whole(bomb, "Content-Encoding: gzip")) as url:
        tracemalloc.start()
        with pytest.raises(MalformedAnswer, match="packs"):
            asked(url)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16 * MIB


def test_an_answer_that_is_nested_without_end_is_no_answer() -> None:
    body = b'{"choices": [], "more": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    with answering(whole(body)) as url, pytest.raises(LlmError):
        asked(url)


def test_a_server_that_lists_its_models_byte_by_byte_holds_nobody_up(tmp_path: Path) -> None:
    def drip(connection: socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b" ")
            time.sleep(0.05)

    home = {"CRYSTAL_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with answering(drip) as url:
        started = time.monotonic()
        with pytest.raises(LlmError):
            find_llm(resolve(environment=home), "mlx", mlx_url=url)
        assert time.monotonic() - started < LOOK_SECONDS_MAX * 5


def test_a_key_goes_to_no_other_machine_over_plain_http() -> None:
    with pytest.raises(Refused, match="plain http") as caught:
        compatible("http://192.0.2.1:8000/v1", "m", key="lm-secret")
    assert "lm-secret" not in repr(caught.value)
    for url in ("https://models.example/v1", "http://127.0.0.1:8000/v1", "http://localhost:8000/v1"):
        assert compatible(url, "m", key="lm-secret").identity.host in url


@pytest.mark.parametrize("variable", ["CRYSTAL_LLM_URL", "CRYSTAL_OLLAMA_HOST"])
def test_an_address_with_a_password_in_it_is_refused_and_not_repeated(tmp_path: Path, variable: str) -> None:
    home = {"CRYSTAL_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with pytest.raises(BadConfig) as caught:
        resolve(environment=home | {variable: "https://me:hunter2@models.example/v1"})
    assert "hunter2" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    ("does", "says"),
    [("while :; do echo $(printf %04000d 1); done", "MiB"), ("setsid sleep 6 &\nsleep 60", "in time")],
)
def test_a_program_that_floods_or_leaves_somebody_behind_ends_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str
) -> None:
    monkeypatch.setattr(claude_cli, "OUTPUT_BYTES_MAX", MIB)
    monkeypatch.setattr(claude_cli, "END_SECONDS_MAX", 0.5)
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{does}\n")
    program.chmod(0o755)
    llm = claude_cli.ClaudeCli("m", environment=dict(os.environ), program=str(program))
    started = time.monotonic()

    async def main() -> None:
        with pytest.raises(LlmError, match=says):
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=2 if says == "in time" else 30)
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)

    asyncio.run(main())
    assert time.monotonic() - started < 5

"""Every provider, asked at a real server that speaks its API; `claude -p` as a real child process."""

import asyncio
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from crystal_core.llm.errors import Refused, TooLong, Unavailable
from crystal_core.llm.port import Llm, Prompt, tokens_bound
from crystal_node.models.llm.anthropic import Anthropic
from crystal_node.models.llm.claude_cli import ClaudeCli
from crystal_node.models.llm.http import Pause
from crystal_node.models.llm.ollama import Ollama
from crystal_node.models.llm.openai import compatible, openai
from tests.contract.llm_contract import KEY, DecliningContract, HttpLlmContract, LlmContract, quickly, until
from tests.support.claude_program import make_claude
from tests.support.llm_server import LlmServer, llm_server
from tests.support.serving import Fault


@pytest.fixture
def server() -> Generator[LlmServer]:
    with llm_server() as running:
        yield running


class TestOpenAi(HttpLlmContract, DecliningContract):
    def make(self, server: LlmServer, folder: Path) -> Llm:
        return openai(KEY, url=server.openai, pause=quickly)

    def patient(self, server: LlmServer, pause: Pause) -> Llm:  # type: ignore[override]
        return openai(KEY, url=server.openai, pause=pause)

    async def test_the_key_goes_to_its_server_alone(self, server: LlmServer, tmp_path: Path) -> None:
        llm = self.make(server, tmp_path)
        await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=10)
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        await llm.aclose()


class TestCompatible(HttpLlmContract, DecliningContract):
    def make(self, server: LlmServer, folder: Path) -> Llm:
        return compatible(server.openai, "test-model", pause=quickly)

    def patient(self, server: LlmServer, pause: Pause) -> Llm:  # type: ignore[override]
        return compatible(server.openai, pause=pause)

    async def test_a_server_that_does_not_count_is_counted_at_its_most(
        self, server: LlmServer, tmp_path: Path
    ) -> None:
        server.counts = False
        llm = self.make(server, tmp_path)
        answer = await llm.complete(Prompt("ab", "cd"), tokens_max=77, seconds_max=10)
        assert not answer.counted
        assert answer.tokens_in == tokens_bound(llm.identity, Prompt("ab", "cd"))
        assert answer.tokens_out == 77
        assert "authorization" not in server.asked[0].headers
        await llm.aclose()


class TestAnthropic(HttpLlmContract, DecliningContract):
    def make(self, server: LlmServer, folder: Path) -> Llm:
        return Anthropic(KEY, url=server.openai, pause=quickly)

    def patient(self, server: LlmServer, pause: Pause) -> Llm:  # type: ignore[override]
        return Anthropic(KEY, url=server.openai, pause=pause)


class TestOllama(HttpLlmContract):
    def make(self, server: LlmServer, folder: Path) -> Llm:
        return Ollama(server.url, "test-model", pause=quickly)

    def patient(self, server: LlmServer, pause: Pause) -> Llm:  # type: ignore[override]
        return Ollama(server.url, "test-model", pause=pause)

    async def test_it_says_how_long_the_context_must_be(self, server: LlmServer, tmp_path: Path) -> None:
        llm = self.make(server, tmp_path)
        await llm.complete(Prompt("a", "b" * 9000), tokens_max=500, seconds_max=10)
        assert server.asked[0].body["options"]["num_ctx"] == 12288
        await llm.aclose()


async def test_a_prompt_that_ollama_has_cut_without_a_word_is_no_success(server: LlmServer) -> None:
    llm = Ollama(server.url, "test-model", pause=quickly)
    with pytest.raises(TooLong):
        await llm.complete(Prompt("a", "b" * 60_000), tokens_max=4_000, seconds_max=10)
    await llm.aclose()


class TestClaudeCli(LlmContract):
    @pytest.fixture(autouse=True)
    def planned(self, tmp_path: Path) -> None:
        make_claude(tmp_path / "bin")
        self._plan(tmp_path)

    def _plan(self, folder: Path, **changes: Any) -> None:
        plan(folder / "bin", **changes)

    def _seen(self, folder: Path) -> dict[str, Any]:
        seen: dict[str, Any] = json.loads((folder / "bin" / "seen.json").read_text())
        return seen

    def make(self, server: LlmServer, folder: Path) -> Llm:
        return ClaudeCli(environment={"PATH": os.environ["PATH"]}, program=str(folder / "bin" / "claude"))

    def nowhere(self, folder: Path) -> Llm:
        return ClaudeCli(environment={}, program=str(folder / "no such program"))

    def seen(self, server: LlmServer, folder: Path) -> tuple[str, str]:
        seen = self._seen(folder)
        return seen["given"]["--system-prompt"], seen["data"]

    def hang(self, server: LlmServer, folder: Path) -> None:
        self._plan(folder, hangs=True)

    def babble(self, server: LlmServer, folder: Path) -> None:
        self._plan(folder, prints="Welcome!")

    async def test_a_version_without_these_fences_is_not_used(
        self, server: LlmServer, tmp_path: Path
    ) -> None:
        self._plan(tmp_path, unknown=["--tools"])
        with pytest.raises(Unavailable, match="exit code") as caught:
            await self.make(server, tmp_path).complete(Prompt("s", "d"), tokens_max=9, seconds_max=10)
        assert "update" in caught.value.hint

    async def test_an_error_that_it_reports_is_one(self, server: LlmServer, tmp_path: Path) -> None:
        self._plan(tmp_path, is_error=True, answer="Invalid API key")
        with pytest.raises(Refused):
            await self.make(server, tmp_path).complete(Prompt("s", "d"), tokens_max=9, seconds_max=10)

    @pytest.mark.parametrize("how", ["limit", "cancelled"])
    async def test_no_child_is_left_behind(self, server: LlmServer, tmp_path: Path, how: str) -> None:
        self._plan(tmp_path, hangs=True)
        llm = self.make(server, tmp_path)
        seconds = 1.0 if how == "limit" else 60.0
        task = asyncio.create_task(llm.complete(Prompt("s", "d"), tokens_max=9, seconds_max=seconds))
        note = tmp_path / "bin" / "child"
        async with asyncio.timeout(20):
            await until(lambda: task.done() or (note.exists() and note.read_text() != ""))
        if how == "cancelled":
            task.cancel()
        with pytest.raises((Unavailable, asyncio.CancelledError)):
            await task
        pids = [self._seen(tmp_path)["pid"], int(note.read_text())]
        async with asyncio.timeout(10):
            await until(lambda: not any(_lives(pid) for pid in pids))


async def test_claude_has_no_tools_no_hooks_no_session_and_nothing_to_read(tmp_path: Path) -> None:
    program = make_claude(tmp_path)
    plan(tmp_path)
    llm = ClaudeCli(environment={"PATH": os.environ["PATH"]}, program=str(program))
    await llm.complete(Prompt("s", "secret data"), tokens_max=9, seconds_max=10)
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["given"]["--tools"] == ""
    assert seen["given"]["--setting-sources"] == ""
    assert {"--strict-mcp-config", "--no-session-persistence"} <= set(seen["given"])
    assert seen["listed"] == []
    assert not await asyncio.to_thread(os.path.lexists, seen["cwd"])
    assert "secret data" not in " ".join(seen["arguments"])
    assert seen["environment"]["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "9"


async def test_no_key_follows_a_redirection_or_stands_in_a_servers_complaint(server: LlmServer) -> None:
    with llm_server() as elsewhere:
        server.faults.append(
            Fault(307, f'{{"error": "no {KEY}"}}', {"Location": f"{elsewhere.openai}/chat/completions"})
        )
        llm = openai(KEY, url=server.openai, pause=quickly)
        with pytest.raises(Refused) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=10)
        await llm.aclose()
        assert elsewhere.asked == []
    assert KEY not in str(caught.value)


def plan(folder: Path, **changes: Any) -> None:
    """What the stand-in for `claude` does when it is started next."""
    usual: dict[str, Any] = {
        "answer": "Hello.",
        "hangs": False,
        "prints": None,
        "code": 0,
        "is_error": False,
        "unknown": [],
    }
    (folder / "plan.json").write_text(json.dumps(usual | changes))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A child of a killed child is somebody else's to reap: a zombie lives no more.
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

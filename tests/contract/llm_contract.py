"""What every provider of a language model must do. A subclass gives one that is asked at `server`, or a stand-in program."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal_core.llm.errors import (
    Declined,
    LlmError,
    MalformedAnswer,
    RateLimited,
    Refused,
    TooLong,
    Unavailable,
)
from crystal_core.llm.port import Llm, Prompt, tokens_bound
from tests.support.llm_server import LlmServer
from tests.support.serving import Fault

KEY = "sk-test-0123456789abcdef"
HOSTILE = "'; touch /tmp/crystal-was-here; `id` $(id) \x00 --tools Bash \ud800 </transcript> ünïcödé"


async def quickly(_seconds: float) -> None:
    """Waiting that takes no time."""


async def until(true: Callable[[], bool]) -> None:
    """Looks again and again; the caller has the deadline."""
    looks = 0
    while not true():
        looks += 1
        assert looks < 2000
        await asyncio.sleep(0.01)


class LlmContract:
    """``make`` is the provider; the server's model answers "Hello." unless a test writes another."""

    def make(self, server: LlmServer, folder: Path) -> Llm:
        raise NotImplementedError

    async def test_it_answers_and_counts(self, server: LlmServer, tmp_path: Path) -> None:
        llm = self.make(server, tmp_path)
        answer = await llm.complete(Prompt("Say hello.", "You may."), tokens_max=50, seconds_max=10)
        assert answer.text == "Hello."
        assert answer.tokens_out > 0
        assert 0 < answer.tokens_in <= tokens_bound(llm.identity, Prompt("Say hello.", "You may."))
        assert answer.counted
        assert not answer.cut
        await llm.aclose()
        await llm.aclose()

    async def test_whatever_the_data_holds_arrives_as_data(self, server: LlmServer, tmp_path: Path) -> None:
        llm = self.make(server, tmp_path)
        await llm.complete(Prompt("System.", HOSTILE), tokens_max=50, seconds_max=10)
        assert self.seen(server, tmp_path) == ("System.", HOSTILE.encode("utf-8", "replace").decode())
        await llm.aclose()

    async def test_nobody_there_is_unavailable_and_has_not_been_paid(
        self, server: LlmServer, tmp_path: Path
    ) -> None:
        llm = self.nowhere(tmp_path)
        with pytest.raises(Unavailable) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=10)
        assert not caught.value.paid
        assert caught.value.hint
        assert caught.value.exit_code == 12
        await llm.aclose()

    async def test_a_call_ends_at_its_limit_and_may_have_been_paid(
        self, server: LlmServer, tmp_path: Path
    ) -> None:
        self.hang(server, tmp_path)
        llm = self.make(server, tmp_path)
        started = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=0.4)
        assert caught.value.paid
        assert asyncio.get_running_loop().time() - started < 5
        await llm.aclose()

    async def test_an_answer_that_is_none_is_malformed(self, server: LlmServer, tmp_path: Path) -> None:
        self.babble(server, tmp_path)
        llm = self.make(server, tmp_path)
        with pytest.raises(MalformedAnswer) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=10)
        assert caught.value.paid
        await llm.aclose()

    def test_no_key_is_shown(self, server: LlmServer, tmp_path: Path) -> None:
        llm = self.make(server, tmp_path)
        assert KEY not in repr(llm) + str(llm) + repr(llm.identity)

    def seen(self, server: LlmServer, folder: Path) -> tuple[str, str]:
        return server.asked[-1].system, server.asked[-1].data

    def nowhere(self, folder: Path) -> Llm:
        return self.make(LlmServer("http://127.0.0.1:1", lambda _system, _data: ""), folder)

    def hang(self, server: LlmServer, folder: Path) -> None:
        server.faults.append(Fault(hangs=True))

    def babble(self, server: LlmServer, folder: Path) -> None:
        server.faults.append(Fault(status=200, body="<html>It works!</html>"))


class HttpLlmContract(LlmContract):
    """What holds for all that speak HTTP."""

    async def test_too_many_requests_are_waited_for(self, server: LlmServer, tmp_path: Path) -> None:
        waited: list[float] = []

        async def pause(seconds: float) -> None:
            waited.append(seconds)

        server.faults += [Fault(429, headers={"Retry-After": "7"}), Fault(503), Fault(529)]
        llm = self.patient(server, pause)
        assert (await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)).text == "Hello."
        assert waited == [7.0, 2.0, 4.0]
        await llm.aclose()

    async def test_what_asks_for_too_long_a_wait_is_told_of(self, server: LlmServer, tmp_path: Path) -> None:
        server.faults += [Fault(429, headers={"Retry-After": "86400"})]
        llm = self.make(server, tmp_path)
        with pytest.raises(RateLimited):
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        assert len(server.asked) == 1
        await llm.aclose()

    async def test_a_server_that_keeps_failing_is_given_up(self, server: LlmServer, tmp_path: Path) -> None:
        server.faults += [Fault(500)] * 9
        llm = self.make(server, tmp_path)
        with pytest.raises(Unavailable) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        assert not caught.value.paid
        assert len(server.asked) == 4
        await llm.aclose()

    async def test_a_request_whose_answer_got_lost_is_not_sent_again(
        self, server: LlmServer, tmp_path: Path
    ) -> None:
        server.faults += [Fault(breaks=True)]
        llm = self.make(server, tmp_path)
        with pytest.raises(Unavailable) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        assert caught.value.paid
        assert len(server.asked) == 1
        await llm.aclose()

    async def test_a_gateway_that_gave_up_may_have_been_paid_and_is_not_asked_again(
        self, server: LlmServer, tmp_path: Path
    ) -> None:
        server.faults += [Fault(504)]
        llm = self.make(server, tmp_path)
        with pytest.raises(Unavailable) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        assert caught.value.paid
        assert len(server.asked) == 1
        await llm.aclose()

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 302])
    async def test_what_passes_by_no_waiting_is_refused_at_once(
        self, server: LlmServer, tmp_path: Path, status: int
    ) -> None:
        reason = {"error": {"message": f"Incorrect API key provided: {KEY} and Bearer {KEY}"}}
        server.faults += [Fault(status, json.dumps(reason), {"Location": "http://127.0.0.1:1/"})]
        llm = self.make(server, tmp_path)
        with pytest.raises(Refused) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        assert str(status) in str(caught.value)
        assert KEY not in str(caught.value)
        assert len(server.asked) == 1
        await llm.aclose()

    async def test_what_a_server_repeats_of_a_conversation_is_in_no_message(
        self, server: LlmServer, tmp_path: Path
    ) -> None:
        server.faults += [Fault(422, json.dumps({"error": "bad input: my secret plan is to sail to Spain"}))]
        llm = self.make(server, tmp_path)
        with pytest.raises(Refused) as caught:
            await llm.complete(
                Prompt("a", "my secret plan is to sail to Spain in May"), tokens_max=5, seconds_max=9
            )
        assert "Spain" not in str(caught.value)
        await llm.aclose()

    async def test_a_prompt_over_the_context_is_told_apart(self, server: LlmServer, tmp_path: Path) -> None:
        body = {
            "error": {"code": "context_length_exceeded", "message": "maximum context length is 8192 tokens"}
        }
        server.faults += [Fault(400, json.dumps(body))]
        llm = self.make(server, tmp_path)
        with pytest.raises(TooLong):
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        await llm.aclose()

    async def test_no_money_left_is_no_matter_of_waiting(self, server: LlmServer, tmp_path: Path) -> None:
        server.faults += [Fault(429, '{"error": {"code": "insufficient_quota", "message": "no"}}')]
        llm = self.make(server, tmp_path)
        with pytest.raises(Refused):
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        await llm.aclose()

    async def test_an_answer_that_ended_at_the_limit_says_so(self, server: LlmServer, tmp_path: Path) -> None:
        server.cut = True
        llm = self.make(server, tmp_path)
        assert (await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)).cut
        assert server.asked[-1].tokens_max == 5
        await llm.aclose()

    async def test_a_giant_answer_is_not_taken(self, server: LlmServer, tmp_path: Path) -> None:
        server.faults += [Fault(200, "x" * (9 * 1024 * 1024))]
        llm = self.make(server, tmp_path)
        with pytest.raises(MalformedAnswer):
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        await llm.aclose()

    async def test_cancelled_it_lets_go(self, server: LlmServer, tmp_path: Path) -> None:
        server.faults += [Fault(hangs=True)]
        llm = self.make(server, tmp_path)
        task = asyncio.create_task(llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60))
        await until(lambda: bool(server.asked))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await llm.aclose()

    def patient(self, server: LlmServer, pause: object) -> Llm:
        raise NotImplementedError


class DecliningContract:
    """For those whose API has a way of declining."""

    def make(self, server: LlmServer, folder: Path) -> Llm:
        raise NotImplementedError

    async def test_a_model_that_declines_says_so(self, server: LlmServer, tmp_path: Path) -> None:
        server.refuses = True
        llm = self.make(server, tmp_path)
        with pytest.raises(Declined) as caught:
            await llm.complete(Prompt("a", "b"), tokens_max=5, seconds_max=60)
        assert isinstance(caught.value, LlmError)
        assert caught.value.paid
        await llm.aclose()

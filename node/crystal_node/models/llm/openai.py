"""OpenAI's chat completions, which the servers of MLX, llama.cpp and vLLM speak, too.

OpenAI calls the answer's limit ``max_completion_tokens``, all others ``max_tokens``.
"""

import asyncio
from typing import Annotated

import msgspec

from crystal_core.llm.port import (
    Completion,
    Declined,
    LlmIdentity,
    MalformedAnswer,
    Prompt,
    tokens_bound,
)
from crystal_node.models.llm.http import LlmHttp, Pause

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_MODEL = "gpt-4.1-mini"
OPENAI_CONTEXT_TOKENS = 128_000
COMPATIBLE_MODEL = "default"
"""Servers with one model accept any name for it."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count
    completion_tokens: Count = 0


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    model: str = ""
    usage: _Usage | None = None


class ChatCompletions:
    """A server that speaks the API; made by ``openai`` and ``compatible``."""

    def __init__(self, http: LlmHttp, identity: LlmIdentity, *, limit: str) -> None:
        self._http = http
        self._identity = identity
        self._limit = limit

    def __repr__(self) -> str:
        return f"ChatCompletions({self._identity})"

    @property
    def identity(self) -> LlmIdentity:
        return self._identity

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        body = {
            "model": self._identity.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.data},
            ],
            self._limit: tokens_max,
            "stream": False,
        }
        answer = await self._http.post("/chat/completions", body, _Answer, seconds_max=seconds_max)
        if not answer.choices:
            raise MalformedAnswer(f"{self._http.host} answers without a choice", paid=True)
        choice = answer.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise Declined(f"{self._identity} declined to answer", paid=True)
        usage = answer.usage
        return Completion(
            choice.message.content or "",
            usage.prompt_tokens if usage else tokens_bound(self._identity, prompt),
            usage.completion_tokens if usage else tokens_max,
            answer.model or self._identity.model,
            cut=choice.finish_reason == "length",
            counted=usage is not None,
        )

    async def aclose(self) -> None:
        await self._http.aclose()


def openai(
    key: str, model: str = "", *, url: str = OPENAI_URL, pause: Pause = asyncio.sleep
) -> ChatCompletions:
    """OpenAI's own server."""
    http = LlmHttp(url, secret={"Authorization": f"Bearer {key}"}, pause=pause)
    identity = LlmIdentity("openai", model or OPENAI_MODEL, http.host, False, OPENAI_CONTEXT_TOKENS)
    return ChatCompletions(http, identity, limit="max_completion_tokens")


def compatible(
    url: str,
    model: str = "",
    *,
    provider: str = "openai-compatible",
    key: str = "",
    pause: Pause = asyncio.sleep,
) -> ChatCompletions:
    """A server at ``url`` (including ``/v1``) with a key of its own. OpenAI's key is never sent to it."""
    http = LlmHttp(url, secret={"Authorization": f"Bearer {key}"} if key else {}, pause=pause)
    identity = LlmIdentity(provider, model or COMPATIBLE_MODEL, http.host, http.local)
    return ChatCompletions(http, identity, limit="max_tokens")

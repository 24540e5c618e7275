"""Anthropic's messages API."""

import asyncio
from typing import Annotated

import msgspec

from crystal_core.llm.port import Completion, Declined, LlmIdentity, Prompt
from crystal_node.models.llm.http import LlmHttp, Pause

ANTHROPIC_URL = "https://api.anthropic.com/v1"
ANTHROPIC_VERSION = "2023-06-01"
ANTHROPIC_MODEL = "claude-haiku-4-5"
ANTHROPIC_CONTEXT_TOKENS = 200_000

Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Usage(msgspec.Struct):
    input_tokens: Count
    output_tokens: Count
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class _Answer(msgspec.Struct):
    content: list[_Block]
    usage: _Usage
    model: str = ""
    stop_reason: str | None = None


class Anthropic:
    """One model of Anthropic."""

    def __init__(
        self, key: str, model: str = "", *, url: str = ANTHROPIC_URL, pause: Pause = asyncio.sleep
    ) -> None:
        self._http = LlmHttp(
            url, secret={"x-api-key": key}, headers={"anthropic-version": ANTHROPIC_VERSION}, pause=pause
        )
        self._identity = LlmIdentity(
            "anthropic", model or ANTHROPIC_MODEL, self._http.host, False, ANTHROPIC_CONTEXT_TOKENS
        )

    def __repr__(self) -> str:
        return f"Anthropic({self._identity})"

    @property
    def identity(self) -> LlmIdentity:
        return self._identity

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        body = {
            "model": self._identity.model,
            "max_tokens": tokens_max,
            "system": prompt.system,
            "messages": [{"role": "user", "content": prompt.data}],
        }
        answer = await self._http.post("/messages", body, _Answer, seconds_max=seconds_max)
        if answer.stop_reason == "refusal":
            raise Declined(f"{self._identity} declined to answer", paid=True)
        usage = answer.usage
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        return Completion(
            "".join(block.text for block in answer.content if block.type == "text"),
            usage.input_tokens + cached,
            usage.output_tokens,
            answer.model or self._identity.model,
            cut=answer.stop_reason == "max_tokens",
        )

    async def aclose(self) -> None:
        await self._http.aclose()

"""Ollama's own chat API.

Its servers silently truncate a prompt that is longer than ``num_ctx``, so each request sets that. Some servers do not count a
cached prompt; its upper bound is counted then.
"""

import asyncio
from typing import Annotated

import msgspec

from crystal_core.llm.port import Completion, LlmIdentity, MalformedAnswer, Prompt, TooLong, tokens_bound
from crystal_node.models.llm.http import LlmHttp, Pause

OLLAMA_CONTEXT_TOKENS = 16_384
_CONTEXT_STEP = 4_096

Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _Message(msgspec.Struct):
    content: str


class _Answer(msgspec.Struct):
    message: _Message
    done: bool
    model: str = ""
    done_reason: str | None = None
    prompt_eval_count: Count | None = None
    eval_count: Count | None = None


class Ollama:
    """One model of an Ollama server."""

    def __init__(self, url: str, model: str, *, pause: Pause = asyncio.sleep) -> None:
        self._http = LlmHttp(url, pause=pause)
        self._identity = LlmIdentity(
            "ollama", model, self._http.host, self._http.local, OLLAMA_CONTEXT_TOKENS
        )

    def __repr__(self) -> str:
        return f"Ollama({self._identity})"

    @property
    def identity(self) -> LlmIdentity:
        return self._identity

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        bound = tokens_bound(self._identity, prompt)
        wanted = min(bound + tokens_max, OLLAMA_CONTEXT_TOKENS)
        context = -(-wanted // _CONTEXT_STEP) * _CONTEXT_STEP
        body = {
            "model": self._identity.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.data},
            ],
            "stream": False,
            "think": False,
            "options": {"num_predict": tokens_max, "num_ctx": context},
        }
        answer = await self._http.post("/api/chat", body, _Answer, seconds_max=seconds_max)
        if not answer.done:
            raise MalformedAnswer(f"{self._http.host} stopped in the middle of its answer", paid=True)
        counted = answer.prompt_eval_count is not None and answer.eval_count is not None
        if (answer.prompt_eval_count or 0) > context - min(tokens_max, context):
            raise TooLong(
                f"the prompt and its answer do not fit {context} tokens of {self._identity}", paid=True
            )
        return Completion(
            answer.message.content,
            bound if answer.prompt_eval_count is None else answer.prompt_eval_count,
            tokens_max if answer.eval_count is None else answer.eval_count,
            answer.model or self._identity.model,
            cut=answer.done_reason == "length",
            counted=counted,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

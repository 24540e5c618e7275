"""Errors of language models, with hints for their owner.

A message never contains a key, and only the short reason of a server's answer. ``paid``: the failed call may have cost
something, so it counts towards a budget.
"""

from crystal_crypto.errors import CrystalError

LLM_EXIT_CODE = 12


class LlmError(CrystalError):
    """A call to a language model failed. Base class of this package's errors."""

    exit_code = LLM_EXIT_CODE
    hint = "What was done before is kept; run the command again, or choose another model: `crystal config set llm_provider …`."

    def __init__(self, message: str, *, hint: str | None = None, paid: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.paid = paid


class Unavailable(LlmError):
    """The server does not answer, not in time, or with a failure of its own. Temporary."""

    hint = "Start the model's server, or see to the network, and run the command again; what was done before is kept."


class Refused(LlmError):
    """The server rejects the request: wrong key, unknown model, no credit. Permanent until somebody acts."""

    hint = (
        "`crystal config` shows provider and model; keys are read from OPENAI_API_KEY and ANTHROPIC_API_KEY."
    )


class TooLong(Refused):
    """The request is longer than the model's context."""

    hint = "Choose a model with a larger context."


class Declined(Refused):
    """The model refuses to answer about this content. Other content may be answered."""

    hint = "Another model may answer: `crystal config set llm_model …`."


class RateLimited(LlmError):
    """Too many requests, even after retries."""

    hint = "Wait a while and run the command again: it goes on where it stopped."


class MalformedAnswer(LlmError):
    """The server's response does not follow its API."""

    hint = "Check that the address is that of the provider's API; it may be another program's."

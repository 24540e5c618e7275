"""What can go wrong with a language model, and what its owner can do about it.

Rules: a message never holds a key, and of what a server answers only its short reason. ``paid`` says whether the call may
have cost something although nothing came of it: who counts tokens counts it then.
"""

from crystal_crypto.errors import CrystalError

LLM_EXIT_CODE = 12


class LlmError(CrystalError):
    """The language model did not do what it was asked for. The root of this folder's errors."""

    exit_code = LLM_EXIT_CODE
    hint = "What was done before is kept; run the command again, or choose another model: `crystal config set llm_provider …`."

    def __init__(self, message: str, *, hint: str | None = None, paid: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.paid = paid


class Unavailable(LlmError):
    """Nobody answers, or not in time, or the server is failing. It may pass."""

    hint = "Start the model's server, or see to the network, and run the command again; what was done before is kept."


class Refused(LlmError):
    """The server answers and does not want this request: a wrong key, no such model, no money: it won't pass by itself."""

    hint = (
        "`crystal config` shows provider and model; keys are read from OPENAI_API_KEY and ANTHROPIC_API_KEY."
    )


class TooLong(Refused):
    """The request is longer than the model takes."""

    hint = "Choose a model with a larger context."


class Declined(Refused):
    """The model does not want to answer about this content. Other content may be answered."""

    hint = "Another model may answer: `crystal config set llm_model …`."


class RateLimited(LlmError):
    """Too many requests, still after waiting and trying again."""

    hint = "Wait a while and run the command again: it goes on where it stopped."


class MalformedAnswer(LlmError):
    """The server's answer is not one of its API."""

    hint = "Check that the address is that of the provider's API; it may be another program's."

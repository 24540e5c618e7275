"""A model that a test writes, behind the four APIs that AI programs speak, with streaming and calls of tools.

::

    with scripted_model() as model:
        model.script.says("gull counter", Call("Bash", {"command": "ls"}), "There are two files.")

The program sends its conversation whole each time: the newest prompt with a known phrase chooses the steps, and what the model
has said since then is the number of those done. Every request is kept.

| module | holds |
|---|---|
| `script` | `Script`, `Reply`, `Call`, and `Asked`: a request in one form for all APIs |
| `anthropic`, `openai`, `gemini` | Messages; Responses and Chat Completions; Gemini |
| `server` | `scripted_model`: the HTTP server |
"""

from tests.support.scripted_model.script import Asked, Call, Reply, Script
from tests.support.scripted_model.server import ScriptedModel, scripted_model

__all__ = ["Asked", "Call", "Reply", "Script", "ScriptedModel", "scripted_model"]

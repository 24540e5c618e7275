"""Providers of language models: each speaks one API and implements `crystal_core.llm.port.Llm`.

| module | speaks |
|---|---|
| `http` | the one way in which all of them send a request: limits, trying again, errors in our words |
| `openai` | chat completions: OpenAI, and any server that speaks the same (MLX, llama.cpp, vLLM) |
| `anthropic` | messages |
| `ollama` | Ollama's own chat API |
| `claude_cli` | `claude -p`, as a child process without tools |
| `discovery` | which of them there is: MLX, Ollama, OpenAI, Anthropic, none |
| `places` | addresses of this machine |

They stand here and not in core, which has no web client.
"""

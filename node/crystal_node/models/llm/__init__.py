"""Providers of language models: each speaks one API and implements `crystal_core.llm.port.Llm`.

| module | speaks |
|---|---|
| `http` | how all of them send requests: limits, retries, errors |
| `openai` | chat completions: OpenAI, and any server that speaks the same (MLX, llama.cpp, vLLM) |
| `anthropic` | messages |
| `ollama` | Ollama's own chat API |
| `claude_cli` | `claude -p`, as a child process without tools |
| `discovery` | which of them this device uses: MLX, Ollama, OpenAI, Anthropic, none |
| `places` | addresses of this machine |

They are here and not in core, which has no web client.
"""

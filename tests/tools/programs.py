"""How each program is told to use the scripted model, to take a turn without a screen, and to go on with a session."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from crystal_node.capture.tools import TOOLS as RECORDED
from tests.support.scripted_model import Call
from tests.support.scripted_model.script import WITHOUT_TOOLS
from tests.tools.workplace import Workplace

LAST = "the last one"
"""In place of a session's id."""


class Program:
    """A program at a workplace. ``source``: what the memory calls it; ``memory_tool``: what comes before the name of a tool of
    Crystal's."""

    name: ClassVar[str]
    source: ClassVar[str]
    memory_tool: ClassVar[str] = ""
    shell: ClassVar[Call | None]
    """A call that prints ``words-of-a-tool``; None if its model has no tools."""
    provider: ClassVar[str] = ""
    """A prefix of model names in its settings and transcripts."""
    has_hooks: ClassVar[bool] = True
    has_memory_tools: ClassVar[bool] = True
    """Whether Crystal has hooks in it, and an MCP server."""
    one_at_a_time: ClassVar[str] = ""
    """What it says where a second one of it is started in the same home; "" if it starts."""
    refuses: ClassVar[bool] = False
    """Whether it says no for its person where an MCP server asks, and there is no screen."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        self.command = workplace.program(self.name)

    def prepare(self) -> None:
        """Make its folder and settings, as a person has them before Crystal comes."""
        raise NotImplementedError

    @property
    def settings(self) -> list[Path]:
        """The files of a person that Crystal changes."""
        raise NotImplementedError

    @property
    def is_recorded(self) -> bool:
        """Whether Crystal reads what it writes."""
        return self.source in RECORDED

    def has_to_be_recorded(self) -> None:
        """Skip the test if it is not."""
        if not self.is_recorded:
            pytest.skip(f"Crystal does not record {self.name}")

    @property
    def variables(self) -> dict[str, str]:
        return {}

    def words(self, prompt: str, session: str) -> list[str]:
        """The command line of one turn: in a new session, or in one that was before."""
        raise NotImplementedError

    def ask(self, folder: Path, prompt: str, session: str = "") -> str:
        """Take one turn. Returns what it printed."""
        return self.workplace.run(self.words(prompt, session), folder, **self.variables).stdout.strip()

    def forked(self, prompt: str, session: str) -> list[str] | None:
        """The command line of a turn in a fork of a session; None if it forks on a screen only. So the next three."""
        return None

    def pictured(self, prompt: str, picture: Path) -> list[str] | None:
        """The command line of a prompt with a picture, in the picture's folder."""
        return None

    def compacted(self, prompt: str, session: str) -> list[list[str]] | None:
        """The command lines that have it compact a session, and then take a turn in it."""
        return None

    def queued(self, prompts: Sequence[str]) -> tuple[list[str], str] | None:
        """The command line that takes several prompts at once, and what it reads then."""
        return None

    def asks_a_helper(self, task: str) -> list[Call]:
        """The calls by which its model gives a task to a sub-agent; [] if it has none."""
        return []

    def helper_says(self, text: str) -> Call | str:
        """How a sub-agent's model gives its answer."""
        return text

    def end(self) -> None:
        """End what it has left running."""

    def search_first(self, tools: Sequence[str]) -> list[Call]:
        """The calls that a model has to make before it can call these tools of the memory."""
        return []


class ClaudeCode(Program):
    name = source = "claude-code"
    memory_tool = "mcp__crystal__"
    shell = Call("Bash", {"command": "echo words-of-a-tool"})
    refuses = True

    def prepare(self) -> None:
        (self.workplace.home / ".claude").mkdir()
        hooks = '{"Stop": [ {"hooks": [\n  {"type":"command","command":"true"}]}]}'
        self.settings[0].write_text('{\n\t"cleanupPeriodDays": 90,   "hooks": ' + hooks + "\n}")

    @property
    def settings(self) -> list[Path]:
        return [self.workplace.home / ".claude" / "settings.json"]

    @property
    def variables(self) -> dict[str, str]:
        return {
            "ANTHROPIC_API_KEY": "dummy",
            "ANTHROPIC_BASE_URL": self.workplace.model.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def words(self, prompt: str, session: str) -> list[str]:
        going_on = ["--continue"] if session == LAST else ["--resume", session] if session else []
        allowed = "--allowedTools=Bash,Read,Agent,ToolSearch,mcp__crystal"
        return [self.command, "-p", prompt, allowed, *going_on]

    def search_first(self, tools: Sequence[str]) -> list[Call]:
        return [Call("ToolSearch", {"query": f"select:{','.join(tools)}"})]

    def forked(self, prompt: str, session: str) -> list[str]:
        return [*self.words(prompt, session), "--fork-session"]

    def pictured(self, prompt: str, picture: Path) -> list[str]:
        return self.words(f"@{picture.name} {prompt}", "")

    def compacted(self, prompt: str, session: str) -> list[list[str]]:
        return [self.words("/compact", session), self.words(prompt, session)]

    def queued(self, prompts: Sequence[str]) -> tuple[list[str], str]:
        messages = [{"type": "user", "message": {"role": "user", "content": prompt}} for prompt in prompts]
        streams = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        return [self.command, "-p", *streams], "".join(f"{json.dumps(message)}\n" for message in messages)

    def asks_a_helper(self, task: str) -> list[Call]:
        return [Call("Agent", {"description": "count", "prompt": task, "subagent_type": "general-purpose"})]


class Codex(Program):
    name = source = "codex"
    memory_tool = "mcp__crystal"
    shell = Call("exec_command", {"cmd": "echo words-of-a-tool"})
    refuses = True

    def prepare(self) -> None:
        folder = self.workplace.home / ".codex"
        folder.mkdir()
        self.settings[0].write_text(
            f"""# by hand
model="scripted"
model_provider = "scripted"
check_for_update_on_startup = false
analytics = {{ enabled = false }}

[model_providers.scripted]
name = "Scripted"   # on the loopback
base_url = "{self.workplace.model.url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY\"
"""
        )

    @property
    def settings(self) -> list[Path]:
        folder = self.workplace.home / ".codex"
        return [folder / "config.toml", folder / "hooks.json"]

    @property
    def variables(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": "dummy"}

    def words(self, prompt: str, session: str) -> list[str]:
        going_on = ["resume", "--last" if session == LAST else session] if session else []
        return self._exec(going_on[:1], [*going_on[1:], prompt])

    def _exec(self, verb: Sequence[str], words: Sequence[str]) -> list[str]:
        options: Sequence[str] = (
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "--dangerously-bypass-hook-trust",
        )
        return [self.command, "exec", *verb, *options, *words]

    def forked(self, prompt: str, session: str) -> list[str]:
        return self._exec(["fork"], [session, prompt])

    def pictured(self, prompt: str, picture: Path) -> list[str]:
        return self._exec([], [prompt, "--image", str(picture)])

    def compacted(self, prompt: str, session: str) -> list[list[str]]:
        return [self._exec(["resume"], ["-c", "model_auto_compact_token_limit=50", session, prompt])]

    def asks_a_helper(self, task: str) -> list[Call]:
        # A sub-agent ends with the program: so the turn waits until the sub-agent's answer is written.
        waits = "until grep -rq 'Seventeen[ ]pelicans' ~/.codex/sessions; do sleep 0.2; done"
        return [
            Call("spawn_agent", {"message": task}),
            Call("exec_command", {"cmd": waits, "yield_time_ms": 30_000}),
        ]


class GeminiCli(Program):
    name = source = "gemini-cli"
    memory_tool = "mcp_crystal_"
    shell = Call("run_shell_command", {"command": "echo words-of-a-tool", "description": "say it"})
    folder: ClassVar[str] = ".gemini"

    def prepare(self) -> None:
        (self.workplace.home / self.folder).mkdir()
        privacy = {"usageStatisticsEnabled": False}
        own = {
            "general": {"enableAutoUpdate": False},
            "privacy": privacy,
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        }
        self.settings[0].write_text(json.dumps(own, indent=3))

    @property
    def settings(self) -> list[Path]:
        return [self.workplace.home / self.folder / "settings.json"]

    @property
    def variables(self) -> dict[str, str]:
        return {
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": self.workplace.model.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def words(self, prompt: str, session: str) -> list[str]:
        going_on = ["--resume", "latest" if session == LAST else session] if session else []
        return [self.command, "--yolo", "--model", "gemini-2.5-pro", *going_on, "--prompt", prompt]

    def pictured(self, prompt: str, picture: Path) -> list[str]:
        return self.words(f"@{picture.name} {prompt}", "")

    def asks_a_helper(self, task: str) -> list[Call]:
        return [Call("invoke_agent", {"agent_name": "generalist", "prompt": task})]

    def helper_says(self, text: str) -> Call:
        return Call("complete_task", {"result": {"response": text}})


class QwenCode(Program):
    name = source = "qwen-code"
    memory_tool = "mcp__crystal__"
    shell = Call("run_shell_command", {"command": "echo words-of-a-tool", "is_background": False})

    def prepare(self) -> None:
        (self.workplace.home / ".qwen").mkdir()
        own = {
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "openai"}},
            "$version": 4,  # else the program writes it
        }
        self.settings[0].write_text(json.dumps(own, indent=3))

    @property
    def settings(self) -> list[Path]:
        return [self.workplace.home / ".qwen" / "settings.json"]

    @property
    def variables(self) -> dict[str, str]:
        return {
            "OPENAI_API_KEY": "dummy",
            "OPENAI_BASE_URL": f"{self.workplace.model.url}/v1",
            "OPENAI_MODEL": "scripted",
        }

    def words(self, prompt: str, session: str) -> list[str]:
        going_on = ["--continue"] if session == LAST else ["--resume", session] if session else []
        return [self.command, "--yolo", *going_on, "--prompt", prompt]

    def forked(self, prompt: str, session: str) -> list[str]:
        return [*self.words(prompt, session), "--fork-session"]

    def compacted(self, prompt: str, session: str) -> list[list[str]]:
        return [self.words("/compress", session), self.words(prompt, session)]

    def asks_a_helper(self, task: str) -> list[Call]:
        return [Call("agent", {"description": "count", "prompt": task, "subagent_type": "general-purpose"})]


class OpenCode(Program):
    name = source = "opencode"
    memory_tool = "crystal_"
    shell = Call("bash", {"command": "echo words-of-a-tool", "description": "say it"})

    def prepare(self) -> None:
        self.settings[0].parent.mkdir(parents=True)
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.workplace.model.url}/v1", "apiKey": "dummy"},
            "models": {
                "scripted": {
                    "reasoning": True,
                    "interleaved": {"field": "reasoning_content"},
                    "attachment": True,
                    "modalities": {"input": ["text", "image"], "output": ["text"]},
                }
            },
        }
        schema = {"$schema": "https://opencode.ai/config.json"}  # else the program writes it
        own = schema | {"autoupdate": False, "share": "disabled", "model": "scripted/scripted"}
        text = json.dumps(own | {"provider": {"scripted": provider}}, indent=2)
        self.settings[0].write_text(
            text.replace("{\n", "{\n  // by hand, with a comma at the end\n", 1)[:-2] + ",\n}\n"
        )

    @property
    def settings(self) -> list[Path]:
        folder = self.workplace.home / ".config" / "opencode"
        return [folder / "opencode.json", folder / "plugin" / "crystal.js"]

    @property
    def variables(self) -> dict[str, str]:
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def words(self, prompt: str, session: str) -> list[str]:
        going_on = ["--continue"] if session == LAST else ["--session", session] if session else []
        # It puts an argument with a space in it between quotes.
        return [self.command, "run", *going_on, *prompt.split(" ")]

    def forked(self, prompt: str, session: str) -> list[str]:
        return [self.command, "run", "--session", session, "--fork", *prompt.split(" ")]

    def pictured(self, prompt: str, picture: Path) -> list[str]:
        return [self.command, "run", *prompt.split(" "), "--file", str(picture)]

    def asks_a_helper(self, task: str) -> list[Call]:
        return [Call("task", {"description": "count", "prompt": task, "subagent_type": "general"})]


class CopilotCli(Program):
    name, source = "copilot", "copilot-cli"
    memory_tool = "crystal-"
    refuses = True
    shell = Call("bash", {"command": "echo words-of-a-tool", "description": "say it"})

    def prepare(self) -> None:
        (self.workplace.home / ".copilot").mkdir()
        other: dict[str, object] = {"type": "local", "command": "true", "args": [], "tools": []}
        own = {"mcpServers": {"other": other}}
        self.settings[0].write_text(json.dumps(own))

    @property
    def settings(self) -> list[Path]:
        folder = self.workplace.home / ".copilot"
        return [folder / "mcp-config.json", folder / "hooks" / "crystal.json"]

    @property
    def variables(self) -> dict[str, str]:
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{self.workplace.model.url}/v1",
            "COPILOT_PROVIDER_API_KEY": "dummy",
            "COPILOT_MODEL": "scripted",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "100000",
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "8000",
        }

    def words(self, prompt: str, session: str) -> list[str]:
        going_on = ["--continue"] if session == LAST else [f"--resume={session}"] if session else []
        return [self.command, "--allow-all-tools", "--silent", *going_on, "--prompt", prompt]

    def asks_a_helper(self, task: str) -> list[Call]:
        named = {"name": "counter", "description": "count", "agent_type": "general-purpose", "mode": "sync"}
        return [Call("task", named | {"prompt": task})]


class OpenClaw(Program):
    name = source = "openclaw"
    one_at_a_time = "failed to acquire gateway state ownership"
    memory_tool = "crystal__"
    shell = Call("exec", {"command": "echo words-of-a-tool"})

    def prepare(self) -> None:
        (self.workplace.home / ".openclaw").mkdir()
        model = {"id": "scripted", "name": "scripted", "contextWindow": 200_000, "maxTokens": 8_000}
        provider = {
            "baseUrl": f"{self.workplace.model.url}/v1",
            "apiKey": "dummy",
            "api": "openai-completions",
            "models": [model | {"reasoning": True, "input": ["text"]}],
        }
        own = {
            "models": {"providers": {"scripted": provider}},
            "tools": {"toolSearch": False},
            "agents": {
                "defaults": {
                    "model": {"primary": "scripted/scripted"},
                    "workspace": "${PWD}",
                    "skipBootstrap": True,
                }
            },
        }
        self.settings[0].write_text(json.dumps(own, indent=1))

    @property
    def settings(self) -> list[Path]:
        folder = self.workplace.home / ".openclaw"
        return [folder / "openclaw.json", folder / "extensions" / "crystal" / "index.js"]

    def words(self, prompt: str, session: str) -> list[str]:
        if session != LAST:
            self._last = session or str(uuid.uuid4())
        turn = ["agent", "--local", "--agent", "main", "--session-id", self._last, "--message", prompt]
        return [self.command, *turn]


class Aider(Program):
    name = source = "aider"
    provider = "openai/"
    shell = None
    has_hooks = False
    has_memory_tools = False
    one_at_a_time = "all write into the project's one file"

    def prepare(self) -> None:
        prices = self.workplace.home / ".aider" / "caches" / "model_prices_and_context_window.json"
        prices.parent.mkdir(parents=True)
        prices.write_text('{"scripted": {}}')  # else it downloads them
        own = f"""model: {self.provider}{WITHOUT_TOOLS}
weak-model: {self.provider}scripted
openai-api-base: {self.workplace.model.url}/v1
openai-api-key: dummy
edit-format: ask
analytics-disable: true
check-update: false
show-release-notes: false
show-model-warnings: false
git: false
pretty: false
fancy-input: false
"""
        (self.workplace.home / ".aider.conf.yml").write_text(own)

    @property
    def settings(self) -> list[Path]:
        return []

    @property
    def variables(self) -> dict[str, str]:
        return {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    def words(self, prompt: str, session: str) -> list[str]:
        if session:
            pytest.skip(
                "aider has no sessions: --restore-chat-history begins another chat with what was said"
            )
        return [self.command, "--yes-always", "--message", prompt]

    def ask(self, folder: Path, prompt: str, session: str = "") -> str:
        """Also captures the folder: Aider's file is only looked for in projects that are known."""
        printed = super().ask(folder, prompt, session)
        self.workplace.machine.run("capture", str(folder))
        return printed


class Cline(Program):
    name = source = "cline"
    shell = Call("run_commands", {"commands": ["echo words-of-a-tool"]})
    has_hooks = False
    has_memory_tools = False

    def prepare(self) -> None:
        folder = self.workplace.home / ".cline" / "data" / "settings"
        folder.mkdir(parents=True)
        own = {
            "provider": "openai-compatible",
            "apiKey": "dummy",
            "model": "scripted",
            "baseUrl": f"{self.workplace.model.url}/v1",
        }
        provider = {"settings": own, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
        named = {
            "version": 1,
            "lastUsedProvider": "openai-compatible",
            "providers": {"openai-compatible": provider},
        }
        (folder / "providers.json").write_text(json.dumps(named))

    @property
    def settings(self) -> list[Path]:
        return []

    def words(self, prompt: str, session: str) -> list[str]:
        if session:
            pytest.skip("cline --id: interactive mode requires a TTY (stdin/stdout must both be terminals)")
        return [self.command, prompt]

    def end(self) -> None:
        self.workplace.run([self.command, "hub", "stop"], self.workplace.home)


PROGRAMS: tuple[type[Program], ...] = (
    ClaudeCode,
    Codex,
    GeminiCli,
    QwenCode,
    OpenClaw,
    OpenCode,
    CopilotCli,
    Cline,
    Aider,
)

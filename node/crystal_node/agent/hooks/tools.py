"""The AI tools that Crystal has hooks in: where each keeps them, and by which names it calls the events.

All of them take Claude Code's form of hooks, and give a hook JSON on its standard input. They differ in the file, in the names
of events, in the unit of a timeout, and in whether they can go on while a hook runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from crystal_node.base.settings import Settings

TIMEOUT_SECONDS = 1
"""A tool ends a hook then. The program ends itself earlier (``search.recall.time_limit``), unless it cannot even start."""
_MILLISECONDS = 1000
_SERVER = ("mcpServers", "crystal")


@dataclass(frozen=True, slots=True)
class HookedTool:
    """One tool. ``recalling``: events whose hooks print something, so that the tool waits for them; ``ending``: those at which
    hooks that run beside the tool would end with it; ``waking``: the others.

    ``timeout``: in the tool's unit. ``beside``: hooks can run beside the tool (``async``). ``server``: where in the same file
    Crystal's MCP server may stand, () if nowhere. ``asks``: what its person has to do before the hooks run.
    ``ends_shell_alone``: a hook that takes too long is ended by ending its shell, and then the tool waits until what that
    shell had started has closed its output.
    """

    name: str
    title: str
    file: Path
    recalling: tuple[str, ...]
    waking: tuple[str, ...]
    ending: tuple[str, ...] = ("SessionEnd",)
    timeout: int = TIMEOUT_SECONDS
    beside: bool = False
    server: tuple[str, ...] = ()
    asks: str = ""
    ends_shell_alone: bool = False

    @property
    def events(self) -> tuple[str, ...]:
        return (*self.recalling, *self.waking, *self.ending)

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def backup(self) -> Path:
        return self.file.with_name(f"{self.file.name}.before-crystal")


@dataclass(frozen=True, slots=True)
class OwnFileTool:
    """One tool. ``folder``: it is on this machine if that is there. ``files``: what is in each, below ``folder``.

    ``setting``: what has to stand in ``settings``, and where. ``events``: for people, what they are called at.
    """

    name: str
    title: str
    folder: Path
    events: tuple[str, ...]
    files: Mapping[str, Callable[[Path], str]]
    settings: Path | None = None
    setting: tuple[tuple[str, ...], object] = ((), None)
    server: tuple[str, ...] = ()
    asks: str = ""

    @property
    def file(self) -> Path:
        """The one that people are told of."""
        return self.folder / next(iter(self.files))

    @property
    def backup(self) -> Path:
        file = self.settings or self.file
        return file.with_name(f"{file.name}.before-crystal")


def hooked_tools(settings: Settings) -> list[HookedTool]:
    """All that are known."""
    prompts, capture = ("SessionStart", "UserPromptSubmit"), settings.capture
    return [
        HookedTool(
            "claude-code",
            "Claude Code",
            settings.claude_folder / "settings.json",
            (*prompts, "PostToolUseFailure", "SubagentStart"),
            ("Stop",),
            beside=True,
        ),
        HookedTool(
            "codex",
            "Codex",
            capture.codex_folder / "hooks.json",
            prompts,
            ("Stop",),
            ending=(),
            asks="Codex runs new hooks once you have trusted them: start it, and type /hooks.",
        ),
        HookedTool(
            "gemini-cli",
            "Gemini CLI",
            capture.gemini_folder / "settings.json",
            ("SessionStart", "BeforeAgent"),
            ("AfterAgent",),
            timeout=TIMEOUT_SECONDS * _MILLISECONDS,
            server=_SERVER,
            ends_shell_alone=True,
        ),
        HookedTool(
            "qwen-code",
            "Qwen Code",
            capture.qwen_folder / "settings.json",
            prompts,
            ("Stop",),
            beside=True,
            server=_SERVER,
        ),
    ]

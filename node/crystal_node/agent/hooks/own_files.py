"""Hooks in tools that read them from files of their own: a plugin of opencode and OpenClaw, a file of hooks of Copilot CLI.

The files are Crystal's: they are made whole, and removed whole. OpenClaw lets a plugin read prompts only if its settings say
so. Our MCP server may stand in the same settings: the copy of them from before is removed with the last of both.
"""

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from crystal_node.agent.hooks import jsondocument, jsonfile
from crystal_node.agent.hooks.jsondocument import DamagedDocument
from crystal_node.agent.hooks.program import program
from crystal_node.agent.hooks.tool_hooks import HooksLook, HookState, command
from crystal_node.agent.hooks.tools import TIMEOUT_SECONDS, OwnFileTool
from crystal_node.base.errors import LocalStorage, NoSuchEntry
from crystal_node.base.settings import Settings

_SOURCES = Path(__file__).with_name("plugins")
_VERSION = "1.0.0"
_OF_PACKAGE = '["recall", "--hook", "--plugin", '
"""Stands in the plugin of a package (``plugin_source``), which some tools copy to where these hooks would be."""


def own_file_tools(settings: Settings) -> list[OwnFileTool]:
    """All that are known."""
    capture = settings.capture
    return [
        OwnFileTool(
            "opencode",
            "opencode",
            settings.config_home / "opencode",
            ("chat.message", "session.idle"),
            {"plugin/crystal.js": lambda home: plugin_source("opencode", home)},
        ),
        OwnFileTool(
            "openclaw",
            "OpenClaw",
            capture.openclaw_folder,
            ("before_prompt_build", "agent_end"),
            {
                "extensions/crystal/index.js": lambda home: plugin_source("openclaw", home),
                "extensions/crystal/openclaw.plugin.json": lambda _: _json(OPENCLAW_MANIFEST),
                "extensions/crystal/package.json": lambda _: _json(openclaw_package(_VERSION)),
            },
            settings=capture.openclaw_folder / "openclaw.json",
            setting=(
                ("plugins", "entries", "crystal"),
                {"enabled": True, "hooks": {"allowConversationAccess": True}},
            ),
            server=("mcp", "servers", "crystal"),
        ),
        OwnFileTool(
            "copilot-cli",
            "Copilot CLI",
            capture.copilot_folder,
            ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"),
            {"hooks/crystal.json": copilot_hooks},
        ),
    ]


OPENCLAW_MANIFEST: dict[str, object] = {
    "id": "crystal",
    "name": "Crystal",
    "description": "Recalls what was said and decided before, on all of your machines.",
    "activation": {"onStartup": True},
    "configSchema": {"type": "object", "additionalProperties": False},
}


def openclaw_package(version: str) -> dict[str, object]:
    """The ``package.json`` of OpenClaw's plugin."""
    return {
        "name": "memory-crystal",
        "version": version,
        "type": "module",
        "openclaw": {"extensions": ["./index.js"]},
    }


def plugin_source(tool: str, home: Path | None) -> str:
    """The JavaScript of a tool's plugin: for a home, or for a package, which calls the ``crystal`` of the PATH."""
    own = [] if home is None else ["--home", str(home)]
    words = {
        "PROGRAM": [*program()] if home is not None else ["crystal"],
        "RECALL": ["recall", "--hook", *own] if own else ["recall", "--hook", "--plugin", tool],
        "NUDGE": ["nudge", *own],
    }
    text = "".join((_SOURCES / name).read_text("utf-8") for name in ("crystal.js", f"{tool}.js"))
    lines = text.replace("\nexport function", "\nfunction").replace("\nexport async", "\nasync").splitlines()
    for index, line in enumerate(lines):
        name = line.removeprefix("const ").partition(" ")[0]
        if line.startswith("const ") and name in words:
            lines[index] = f"const {name} = {json.dumps(words[name], ensure_ascii=False)}"
    mark = [] if home is None else [f"// {_mark(home)}: `crystal hooks uninstall` removes it."]
    return "\n".join([*mark, *lines, ""])


def copilot_hooks(home: Path) -> str:
    """The hooks of Copilot CLI, under Claude Code's names of the events: it gives a hook the same words then."""
    hooks: dict[str, object] = {}
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
        recalls = event in ("SessionStart", "UserPromptSubmit")
        said = command(home, recalls=recalls, tool="copilot-cli")
        hooks[event] = [{"type": "command", "command": said, "timeout": TIMEOUT_SECONDS}]
    return _json({"version": 1, "description": _mark(home), "hooks": hooks})


class OwnFileHooks:
    """The hooks of one Crystal home in one tool."""

    def __init__(self, settings: Settings, tool: OwnFileTool) -> None:
        self.tool = tool
        self._home = settings.home.root

    @property
    def there(self) -> bool:
        """Whether the tool is on this machine."""
        return self.tool.folder.is_dir()

    @property
    def file(self) -> Path:
        return self.tool.file

    @property
    def settings_file(self) -> Path | None:
        """The person's own settings file that is changed as well."""
        return self.tool.settings

    @property
    def backup(self) -> Path:
        return self.tool.backup

    @property
    def installed(self) -> bool:
        """Whether all are there as they should be; no if a file cannot be read without a doubt."""
        with suppress(DamagedDocument):
            return self.look().installed
        return False

    @property
    def absent(self) -> bool:
        """Whether nothing of ours is there; no if a file cannot be read without a doubt."""
        with suppress(DamagedDocument):
            return self.look().absent
        return False

    def look(self) -> HooksLook:
        """The hooks as they are. Raises DamagedDocument."""
        states = {self._state(name) for name in self.tool.files}
        settings = self._settings()
        if self.tool.settings is not None:
            path, wanted = self.tool.setting
            found = jsondocument.value_at(settings, path)
            states.add(HookState.INSTALLED if found == wanted else HookState.MISSING)
        state = states.pop() if len(states) == 1 else HookState.OUTDATED
        copied = self.tool.settings is not None and self.backup.exists() and not self._needed(settings)
        return HooksLook(self.tool, self.there, dict.fromkeys(self.tool.events, state), copied=copied)

    def install(self) -> bool:
        """Make the files. Returns whether anything was changed.

        Raises:
            NoSuchEntry: the tool is not here.
            LocalStorage: a file of that name is another's.
            DamagedDocument, HomeBusy: the tool's settings cannot be changed. Nothing was.
        """
        if not self.there:
            raise NoSuchEntry(
                f"there is no {self.tool.title} on this machine: no folder {self.tool.folder}",
                hint="Start it once. Without hooks Crystal still sees what it writes.",
            )
        if self.file.exists() and not self._ours():
            if _OF_PACKAGE in (self._read(next(iter(self.tool.files))) or ""):
                raise LocalStorage(
                    f"{self.file} is of Crystal's package for {self.tool.title}",
                    hint="It recalls as these hooks would. Uninstall the package to have these instead.",
                )
            raise LocalStorage(
                f"{self.file} is not this home's",
                hint="It was left as it is. Rename or remove it, then run the command again.",
            )
        changed = self._allow()
        for name, made in self.tool.files.items():
            text = made(self._home)
            if self._read(name) != text:
                _write(self.tool.folder / name, text)
                changed = True
        return changed

    def uninstall(self) -> bool:
        """Remove the files, and folders that are empty then. Returns whether there were any. Raises as ``install``."""
        changed = self._ours()
        for name in reversed(
            [*self.tool.files] if changed else []
        ):  # the first last: by it the others are known
            path = self.tool.folder / name
            path.unlink(missing_ok=True)
            for folder in [*path.relative_to(self.tool.folder).parents][:-1]:
                with suppress(OSError):  # there is something else in it
                    (self.tool.folder / folder).rmdir()
        return self._forbid() or changed

    def holds(self, text: str) -> bool:
        """Whether the text of the tool's settings has anything of ours. Raises DamagedDocument."""
        found = jsondocument.parse(text) if text.strip() else None
        return jsondocument.value_at(found, self.tool.setting[0]) is not None

    def _settings(self) -> object:
        if self.tool.settings is None:
            return None
        text = jsonfile.read_text(self.tool.settings)
        return jsondocument.parse(text) if text and text.strip() else {}

    def _needed(self, settings: object) -> bool:
        """Whether anything of ours is in the settings, our MCP server too."""
        paths = (self.tool.setting[0], self.tool.server)
        return any(jsondocument.value_at(settings, path) is not None for path in paths)

    def _allow(self) -> bool:
        if self.tool.settings is None:
            return False
        path, wanted = self.tool.setting

        def changed(text: str) -> str:
            text = text if text.strip() else "{}\n"
            if jsondocument.value_at(jsondocument.parse(text), path) == wanted:
                return text
            return jsondocument.with_value(text, path, wanted)

        backup = None if self._needed(self._settings()) else self.backup
        return jsonfile.change(self.tool.settings, changed, backup=backup)

    def _forbid(self) -> bool:
        if self.tool.settings is None:
            return False
        path = self.tool.setting[0]
        changed = False
        if jsondocument.value_at(self._settings(), path) is not None:
            text = jsonfile.read_text(self.backup)
            before = jsondocument.parse(text) if text and text.strip() else None
            made_here = not self.backup.exists()

            def without(found: str) -> str:
                left = jsondocument.without(found, path)
                for depth in range(len(path) - 1, 0, -1):
                    outer = path[:depth]
                    is_new = jsondocument.value_at(before, outer) is None
                    if is_new and jsondocument.value_at(jsondocument.parse(left), outer) == {}:
                        left = jsondocument.without(left, outer)
                return text if text is not None and jsondocument.same(left, text) else left

            changed = jsonfile.change(self.tool.settings, without)
            if made_here and self._settings() == {}:
                jsonfile.remove(self.tool.settings)
        if not self._needed(self._settings()):
            with suppress(FileNotFoundError):
                self.backup.unlink()
        return changed

    def _read(self, name: str) -> str | None:
        return jsonfile.read_text(self.tool.folder / name)

    def _ours(self) -> bool:
        """Whether the files are this home's: the first one says so."""
        return _mark(self._home) in (self._read(next(iter(self.tool.files))) or "")

    def _state(self, name: str) -> HookState:
        text = self._read(name)
        if text is None or not self._ours():
            return HookState.MISSING
        return HookState.INSTALLED if text == self.tool.files[name](self._home) else HookState.OUTDATED


def _mark(home: Path) -> str:
    """What tells a file of this home, wherever the program was installed when it was written."""
    return f"made by memory-crystal for home {sha256(os.fsencode(home)).hexdigest()[:16]}"


def _json(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    jsonfile.change(path, lambda _: text)

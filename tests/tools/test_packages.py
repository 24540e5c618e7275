"""Crystal's packages, installed by the programs themselves: they recall once, also where `crystal up` has put its own hooks."""

import os
import sys
from pathlib import Path

import pytest

from scripts.make_plugins import FOLDER
from tests.node.agent.daemon.running import agent
from tests.tools.conftest import Bare
from tests.tools.programs import ClaudeCode, GeminiCli, Program, QwenCode
from tests.tools.test_every_program import MARK, TRIES_MAX

FACT = "The heron camera wakes at 05:20."
INSTALL: dict[type[Program], list[list[str]]] = {
    ClaudeCode: [
        ["plugin", "marketplace", "add", str(FOLDER)],
        ["plugin", "install", "crystal@memory-crystal"],
    ],
    GeminiCli: [["extensions", "install", str(FOLDER / "gemini-cli"), "--consent", "--skip-settings"]],
    QwenCode: [["extensions", "install", str(FOLDER / "qwen-code"), "--consent"]],
}


@pytest.mark.parametrize("kind", INSTALL, ids=lambda kind: kind.name)
def test_a_package_recalls_once_alone_and_beside_crystal_up(
    bare: Bare, kind: type[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    program = bare(kind)
    workplace = program.workplace
    machine, script = workplace.machine, workplace.model.script
    for words in INSTALL[kind]:
        workplace.run([program.command, *words], workplace.home, **program.variables)
    machine.run("up", "--role", "core", "--yes", "--no-service", "--no-hooks", "--no-mcp")
    machine.run("remember", FACT, "--scope", "everywhere")
    with agent(machine):
        for stage in ("alone", "beside the hooks of crystal up"):
            if stage != "alone":
                machine.run("hooks", "install", program.source)
            prompt = script.says(f"At which hour does the heron camera wake, {stage}?", "At that hour.")
            for _ in range(TRIES_MAX):
                program.ask(workplace.project("herons"), prompt)
                if FACT in script.holding(prompt)[-1].text:
                    break
            text = script.holding(prompt)[-1].text
            # A session is told it once: at its start or at its prompt.
            assert text.count(FACT) == 1, (stage, text[-2000:])
            assert MARK in text
            assert script.holding(prompt)[-1].tools

"""What was said on the Core of these tests, and what was written of it."""

from pathlib import Path

from tests.support.machine import Machine, transcript

AGENT = "claude-code"
TEXTS = ("Let us keep a list of all ships.", "I will mend the sails tomorrow.", "We decided to use teak.")


def said(core: Machine, *texts: str, name: str = "session") -> None:
    transcript(core, *texts, name=name)
    core.call("capture")
    core.call("sync")


def folder(core: Machine) -> Path:
    return core.home / "agents" / AGENT


def read(core: Machine) -> dict[str, str]:
    """All files of the agent, by their names."""
    return {
        str(path.relative_to(folder(core))): path.read_text(encoding="utf-8")
        for path in sorted(folder(core).rglob("*.md"))
        if "sessions" not in path.parts and "daily" not in path.parts
    }

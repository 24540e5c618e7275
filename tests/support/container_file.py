"""Reads a Containerfile into its instructions. Enough for ours: no heredocs, no variables in the ones that are looked at."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    """One instruction of the last stage or of an earlier one, continuation lines joined."""

    name: str
    value: str
    stage: int

    def words(self) -> list[str]:
        """The exec form. Raises ValueError for the shell form."""
        _, bracket, rest = self.value.partition("[")
        if not bracket:
            raise ValueError(f"{self.name} goes through a shell")
        words: list[str] = json.loads(bracket + rest)
        return words


class ContainerFile:
    """The instructions of a file."""

    def __init__(self, path: Path) -> None:
        self.instructions: list[Instruction] = []
        stage = -1
        text = "\n".join(
            line
            for line in path.read_text(encoding="utf-8").splitlines()
            if not line.lstrip().startswith("#")
        )
        for line in text.replace("\\\n", " ").splitlines():
            name, _, value = line.strip().partition(" ")
            if not name:
                continue
            stage += name == "FROM"
            self.instructions.append(Instruction(name, " ".join(value.split()), stage))

    def all(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]

    def last(self, name: str) -> Instruction:
        """Of the last stage, which is what runs."""
        final = self.instructions[-1].stage
        return [one for one in self.all(name) if one.stage == final][-1]

    def environment(self) -> dict[str, str]:
        """Of the last stage."""
        final = self.instructions[-1].stage
        pairs = [pair for one in self.all("ENV") if one.stage == final for pair in one.value.split()]
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

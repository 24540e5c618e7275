"""Reads a systemd unit, and what systemd itself says about it. No running systemd is needed."""

import re
import subprocess
from pathlib import Path

_EXPOSURE = re.compile(r"Overall exposure level for [\w@.-]+: ([0-9]+\.[0-9]+)")


class Unit:
    """The `[Service]` section: each setting's values in order. An empty assignment clears what came before it."""

    def __init__(self, path: Path) -> None:
        self._values: dict[str, list[str]] = {}
        section = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            if section != "Service" or "=" not in line or line.startswith("#"):
                continue
            name, _, value = line.partition("=")
            values = self._values.setdefault(name.strip(), [])
            if value.strip():
                values.append(value.strip())
            else:
                values.clear()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, name: str) -> list[str]:
        return list(self._values.get(name, []))

    def one(self, name: str) -> str:
        (value,) = self._values[name]
        return value

    def on(self, name: str) -> bool:
        return self._values.get(name, []) == ["yes"]

    def environment(self) -> dict[str, str]:
        pairs = [pair.partition("=") for line in self.all("Environment") for pair in line.split()]
        return {name: value for name, _, value in pairs}

    def system_calls(self) -> set[str]:
        """The names that `SystemCallFilter` leaves."""
        allowed: set[str] = set()
        for value in self.all("SystemCallFilter"):
            named = {call for word in value.lstrip("~").split() for call in _calls_of(word)}
            allowed = allowed - named if value.startswith("~") else allowed | named
        # systemd adds these to every list of allowed calls, or a service could not even be started.
        return allowed | _calls_of("@default") | {"execve", "exit", "exit_group", "getrlimit", "rt_sigreturn"}


def exposure(path: Path) -> float:
    """The figure of `systemd-analyze security`: 0 is closed, 10 is open."""
    said = _systemd_analyze("security", "--offline=true", "--no-pager", str(path)).stdout
    found = _EXPOSURE.search(said)
    assert found is not None, said
    return float(found[1])


def complaints(path: Path) -> str:
    """What `systemd-analyze verify` finds wrong; empty when nothing."""
    done = _systemd_analyze("verify", "--man=no", str(path))
    return (done.stdout + done.stderr).strip() or ("" if done.returncode == 0 else "it failed")


def _calls_of(word: str) -> set[str]:
    if not word.startswith("@"):
        return {word}
    listed = _systemd_analyze("syscall-filter", word).stdout
    members = [line.strip() for line in listed.splitlines()[1:] if line.strip() and "#" not in line]
    return {call for member in members for call in _calls_of(member)}


def _systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )

"""The person's login session: where the service manager's files and its socket are found."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_RUNTIME = Path("/run/user")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """``person``: the home folder; ``config``: where programs keep settings; ``environment``: for commands of the session."""

    person: Path
    config: Path
    environment: Mapping[str, str]


def surroundings(person: Path, environment: Mapping[str, str] | None = None) -> Surroundings:
    """The session of this process. A login over SSH without a session of its own still finds the person's manager."""
    env = dict(os.environ if environment is None else environment)
    named = env.get("XDG_CONFIG_HOME", "")
    config = Path(named) if named.startswith("/") else person / ".config"
    kept = _without_ours(env)
    runtime = _RUNTIME / str(os.getuid())
    if "XDG_RUNTIME_DIR" not in kept and runtime.is_dir():
        kept["XDG_RUNTIME_DIR"] = str(runtime)
    return Surroundings(person, config, kept)


def environment_with(added: Mapping[str, str]) -> dict[str, str]:
    """For another program: this process's environment without Crystal's own variables, and what is added."""
    return _without_ours(os.environ) | dict(added)


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("CRYSTAL_")}

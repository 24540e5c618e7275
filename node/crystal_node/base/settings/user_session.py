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
    kept = {name: value for name, value in env.items() if not name.startswith("CRYSTAL_")}
    runtime = _RUNTIME / str(os.getuid())
    if "XDG_RUNTIME_DIR" not in kept and runtime.is_dir():
        kept["XDG_RUNTIME_DIR"] = str(runtime)
    return Surroundings(person, config, kept)

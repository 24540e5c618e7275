"""A real relay process whose invites live for seconds in place of ten minutes."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from tests.support.relay_process import RelayProcess


@contextlib.contextmanager
def hasty_relay(folder: Path, *, seconds: int) -> Generator[RelayProcess]:
    """Its limit is set before anything of it is loaded; all else is as ever."""
    startup = folder / "startup"
    startup.mkdir(parents=True)
    (startup / "sitecustomize.py").write_text(
        f"import crystal_relay.limits\ncrystal_relay.limits.INVITE_SECONDS = {seconds}\n"
    )
    relay = RelayProcess(folder / "store", environment={"PYTHONPATH": str(startup)})
    relay.start()
    try:
        yield relay
    finally:
        relay.stop()

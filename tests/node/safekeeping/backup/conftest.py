"""A home that was lived in."""

import pytest

from tests.support.machine import Machine, Vault


@pytest.fixture
def lived(vault: Vault) -> Machine:
    """A Core with memories, files, and something that it has not sent."""
    core = vault.core
    core.call("remember", "The boiler is serviced in October.")
    (core.home / "notes").mkdir()
    (core.home / "notes" / "plan.md").write_text("First the roof.\n")
    script = core.home / "notes" / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    core.call("sync")
    core.call("remember", "Recorded, and not sent yet.")
    return core

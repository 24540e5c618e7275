"""What an agent has quoted is not its own: rejecting the agent leaves it where it was written or remembered."""

from types import SimpleNamespace
from typing import Any, cast

from crystal_mirror.operations import Capture, Forget, Piece, PutDocument, PutSource, Remember
from crystal_node.base.settings import resolve
from crystal_node.derive.staging.service import forget_agent
from crystal_node.device.device import opened
from tests.support.machine import Vault

NOW = 1_700_000_000_000


def said(agent: str, *texts: str) -> Capture:
    pieces = tuple(Piece(text, "assistant", NOW, f"m{number}", 0) for number, text in enumerate(texts))
    return Capture(agent, "s", "p", "", "claude-code", pieces)


def test_a_rejected_agent_takes_along_only_what_nobody_else_has(vault: Vault) -> None:
    core = vault.core
    with opened(resolve(environment=core.environment | {"CRYSTAL_HOME": str(core.home)})) as device:
        device.accept(
            [PutSource("notes", "notes", (), (), NOW), said("guest", "own", "written", "remembered")]
        )
        device.accept([PutDocument("notes", "a.md", bytes(32), NOW, "md", 0, 1, ("written",), ("",))])
    core.call("sync")
    with opened(resolve(environment=core.environment | {"CRYSTAL_HOME": str(core.home)})) as device:
        device.accept([Remember("remembered", "fact", "a", NOW)])  # not in order yet
        accepted: list[Any] = []
        shop = cast("Any", SimpleNamespace(database=device.replica.database))
        hashes = {
            bytes(row[0]): row[1]
            for row in device.replica.database.rows("SELECT forget_hash, text FROM chunks")
        }
        device_like = cast("Any", SimpleNamespace(accept=accepted.extend))
        assert forget_agent(device_like, shop, "guest") == (1, 2)
        assert [
            hashes[each]
            for operation in accepted
            if isinstance(operation, Forget)
            for each in operation.targets
        ] == ["own"]

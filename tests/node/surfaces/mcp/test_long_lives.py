"""A server lives as long as its agent's session: days, in which its home may change under it."""

import json
import shutil
from pathlib import Path

import apsw
import pytest

from crystal_node.base.errors import NotSetUp
from crystal_node.base.settings import Settings, resolve
from crystal_node.search.finding.documents import SearchRequest
from crystal_node.search.finding.keeper import IDLE_SECONDS, Keeper
from tests.support.machine import Machine
from tests.support.mcp_client import connected, recorded


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _settings(machine: Machine) -> Settings:
    return resolve(environment=machine.environment | {"CRYSTAL_HOME": str(machine.home)})


def _found(keeper: Keeper, query: str) -> list[str]:
    with keeper.finding() as finding:
        return [result.text for result in finding.search(SearchRequest(query=query)).results]


def _open_files(machine: Machine) -> list[Path]:
    database = machine.home / "memory" / "crystal.db"
    links = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [each for each in links if each.exists() and each.resolve() == database.resolve()]


@pytest.fixture
def copy(memory: Machine, tmp_path: Path) -> Machine:
    """A machine of its own with that memory."""
    shutil.copytree(memory.root, tmp_path / "copy", symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    return Machine(tmp_path / "copy")


def test_a_database_that_is_put_in_the_place_of_another_is_taken_up(copy: Machine, tmp_path: Path) -> None:
    keeper = Keeper(lambda: _settings(copy))
    assert any("crane" in text for text in _found(keeper, "harbour crane"))
    database = copy.home / "memory" / "crystal.db"
    other = tmp_path / "other.db"
    source = apsw.Connection(str(database))
    source.execute("VACUUM INTO ?", (str(other),))
    source.close()
    copy.call("remember", "The crane was sold to Bergen.")
    assert any("Bergen" in text for text in _found(keeper, "crane sold"))
    for path in database.parent.glob("crystal.db-*"):
        path.unlink()
    other.replace(database)
    assert not any("Bergen" in text for text in _found(keeper, "crane sold"))
    keeper.close()
    assert _open_files(copy) == []


def test_after_a_while_without_questions_everything_is_let_go(copy: Machine) -> None:
    clock = _Clock()
    keeper = Keeper(lambda: _settings(copy), clock)
    for _ in range(3):
        assert _found(keeper, "harbour crane")
        assert _open_files(copy)
        clock.now += IDLE_SECONDS - 1
        assert keeper.rest() is False
        clock.now += 2
        assert keeper.rest() is True
        assert _open_files(copy) == []
        assert keeper.rest() is False


def test_a_question_under_way_ends_on_what_it_began_with(copy: Machine) -> None:
    keeper = Keeper(lambda: _settings(copy))
    with keeper.finding() as finding:
        keeper.close()
        assert finding.search(SearchRequest(query="harbour crane")).results
    assert _open_files(copy) == []


def test_settings_are_read_anew_when_their_file_changes(copy: Machine) -> None:
    keeper = Keeper(lambda: _settings(copy))
    assert keeper.settings().agent_id == "claude-code"
    config = copy.home / "config.json"
    text = config.read_text()
    with keeper.finding() as before:
        assert before.search(SearchRequest(query="harbour crane")).results
    config.write_text(json.dumps(json.loads(text) | {"agent": "cc-boat"}))
    assert keeper.settings().agent_id == "cc-boat"
    with keeper.finding() as after:
        assert after is not before
    config.write_text("{}")
    with pytest.raises(NotSetUp):
        keeper.settings()
    config.write_text(text)
    assert _found(keeper, "harbour crane")
    keeper.close()


async def test_a_home_that_another_process_is_writing_to_is_searched_all_the_same(copy: Machine) -> None:
    database = apsw.Connection(str(copy.home / "memory" / "crystal.db"))
    try:
        database.execute("BEGIN IMMEDIATE")
        async with connected(copy) as client:
            result = await client.call_tool("crystal_search", {"query": "harbour crane"})
            assert recorded(result)
    finally:
        database.execute("ROLLBACK")
        database.close()


def test_no_other_command_imports_the_sdk(machine: Machine) -> None:
    for arguments in (("--help",), ("mcp", "status", "--json"), ("status", "--help"), ("config", "--json")):
        outcome = machine.run(*arguments, PYTHONPROFILEIMPORTTIME="1", check=False)
        loaded = {line.rsplit("|", 1)[-1].strip() for line in outcome.err.splitlines() if "|" in line}
        assert "crystal_node.surfaces.cli" in loaded
        assert not {"mcp", "mcp_types", "pydantic", "starlette", "onnxruntime"} & loaded, arguments


def test_serving_loads_no_model_before_the_first_search(machine: Machine) -> None:
    outcome = machine.run("mcp", PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rsplit("|", 1)[-1].strip() for line in outcome.err.splitlines() if "|" in line}
    assert "mcp.server" in loaded
    assert not {"onnxruntime", "numpy", "sqlite_vec", "crystal_core.search.search"} & loaded

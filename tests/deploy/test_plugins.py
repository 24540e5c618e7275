"""The packages for AI programs: what is committed is what the script writes, and all of it calls Crystal alike."""

import json
import tomllib
from pathlib import Path

import pytest

from crystal_node.agent.hooks.program import words_after
from scripts.make_plugins import COMMANDS, FOLDER, files, main


def test_what_is_committed_is_what_the_script_writes() -> None:
    written = dict(files())
    assert {
        str(path.relative_to(FOLDER)): path.read_text("utf-8") for path in FOLDER.rglob("*") if path.is_file()
    } == written


def test_every_hook_succeeds_whatever_happens_and_gives_way_to_that_of_crystal_up() -> None:
    for file in FOLDER.glob("*/hooks/hooks.json"):
        tool = file.parent.parent.name
        for groups in json.loads(file.read_bytes())["hooks"].values():
            (entry,) = groups[0]["hooks"]
            words = words_after(entry["command"])
            assert words is not None
            assert words[-2:] == ["||", "true"]
            assert words[0] == "nudge" or words[:4] == ["recall", "--hook", "--plugin", tool]
    for tool in ("opencode", "openclaw"):
        assert f'"--plugin", "{tool}"' in (FOLDER / tool / "index.js").read_text()


def test_every_package_with_commands_has_all_of_them() -> None:
    assert {file.stem for file in (FOLDER / "claude-code/commands").iterdir()} == set(COMMANDS)
    assert {file.stem for file in (FOLDER / "qwen-code/commands/crystal").iterdir()} == set(COMMANDS)
    for name in COMMANDS:
        told = tomllib.loads((FOLDER / "gemini-cli/commands/crystal" / f"{name}.toml").read_text())
        assert "{{args}}" in told["prompt"]


def test_a_folder_that_the_script_did_not_write_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs.txt").write_text("mine")
    assert main([str(tmp_path)]) == 1
    assert "holds other things" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["theirs.txt"]
    own = tmp_path / "own"
    assert main([str(own)]) == 0
    (own / "opencode" / "old.js").write_text("")
    assert main([str(own)]) == 0
    assert {str(one.relative_to(own)) for one in own.rglob("*") if one.is_file()} == dict(files()).keys()

"""The release workflow keeps its promises, as far as its text can show, and the formula is of the built file."""

import hashlib
import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from scripts import make_formula
from scripts.make_formula import formula
from tests.support.machine import Machine
from tests.support.release_files import PROJECT, build

WORKFLOW = PROJECT / ".github" / "workflows" / "release.yml"
_PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")


def workflow() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return document


def steps() -> list[dict[str, Any]]:
    return [step for job in workflow()["jobs"].values() for step in job["steps"]]


def test_every_action_is_pinned_by_its_commit_and_names_its_version() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert len(used) > 8
    assert [name for name in used if not _PINNED.fullmatch(name)] == []
    lines = [line for line in WORKFLOW.read_text(encoding="utf-8").splitlines() if " uses: " in line]
    assert [line for line in lines if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


def test_no_job_has_more_rights_than_it_needs() -> None:
    document = workflow()
    assert document["permissions"] == {}
    rights = {name: job["permissions"] for name, job in document["jobs"].items()}
    publish = rights.pop("publish")
    assert publish == {"contents": "write", "id-token": "write", "attestations": "write"}
    assert all(right == {"contents": "read"} for right in rights.values())
    assert "secrets." not in WORKFLOW.read_text(encoding="utf-8")


def test_nothing_from_outside_is_pasted_into_a_shell() -> None:
    assert [step for step in steps() if "${{" in step.get("run", "")] == []


def test_what_is_published_was_tested_on_each_system_and_python() -> None:
    jobs = workflow()["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert {os.split("-")[0] for os in matrix["os"]} == {"ubuntu", "macos", "windows"}
    classifiers = re.findall(r"Python :: (3\.\d+)", (PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert matrix["python"] == classifiers == ["3.11", "3.12", "3.13", "3.14"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"


def test_the_scripts_that_it_calls_are_there() -> None:
    called = re.findall(r"-m (scripts\.\w+)", WORKFLOW.read_text(encoding="utf-8"))
    assert called
    assert all((PROJECT / f"{name.replace('.', '/')}.py").exists() for name in called)
    named = re.findall(r"\b(?:requirements|deploy)/[\w.]+", WORKFLOW.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not (PROJECT / name).exists()] == []


@pytest.mark.slow
def test_the_formula_is_of_the_built_sdist(tmp_path: Path) -> None:
    sdist = build(tmp_path).sdist
    text = formula(sdist, "https://example.org/memory_crystal.tar.gz", "https://example.org")
    assert hashlib.sha256(sdist.read_bytes()).hexdigest() in text
    assert 'bin.install_symlink libexec/"bin/crystal", libexec/"bin/crystal-relay"' in text
    assert 'conflicts_with "crystal"' in text
    ruby = which("ruby")
    if ruby is not None:
        subprocess.run([ruby, "-c"], input=text, text=True, check=True, capture_output=True)


def test_the_formulas_own_test_expects_what_the_command_says(tmp_path: Path) -> None:
    text = Path(make_formula.__file__).read_text(encoding="utf-8")
    expected = re.search(r'assert_match "([^"]+)", shell_output\(.*crystal status 2>&1", (\d)\)', text)
    assert expected is not None
    said = Machine(tmp_path).call("status", check=False)
    assert expected[1] in said.err
    assert said.code == int(expected[2])


@pytest.mark.parametrize(
    "address", ["http://example.org/x", 'https://example.org/"', "https://example.org/#{x}"]
)
def test_an_address_that_ruby_would_execute_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no address"):
        formula(tmp_path / "none", address, "https://example.org")

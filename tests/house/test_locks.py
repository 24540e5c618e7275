"""The lock files have every package that is needed, in the tested version, with hashes, in step with pyproject.toml."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.make_locks import CONSTRAINTS, LOCKS, REQUIREMENTS, build_requirements

PROJECT = Path(__file__).resolve().parents[2]
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


class Locked:
    """A lock file: the requirement of each package, and how many hashes it has."""

    def __init__(self, text: str) -> None:
        self.packages: dict[str, Requirement] = {}
        self.hashes: dict[str, int] = {}
        for block in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines():
            if block.strip():
                requirement = Requirement(_HASH.sub("", block).strip())
                name = canonicalize_name(requirement.name)
                assert name not in self.packages, f"{name} is there twice"
                self.packages[name] = requirement
                self.hashes[name] = len(_HASH.findall(block))

    def version(self, name: str) -> str:
        return str(self.packages[name].specifier).removeprefix("==")

    def faults(self, wanted: list[Requirement], tested: dict[str, str]) -> list[str]:
        """What is missing, has another version than the tested one or that is wanted, or no hash."""
        found = [f"{name} has no hash" for name, count in self.hashes.items() if not count]
        for name, requirement in self.packages.items():
            exact = [each.operator for each in requirement.specifier] == ["=="]
            # What other systems need is not among the packages that were tested here.
            if not exact or (
                (name in tested or requirement.marker is None) and self.version(name) != tested.get(name)
            ):
                found.append(f"{requirement} was not tested")
        return found + [f"{each} is missing" for each in self._open(wanted)]

    def _open(self, wanted: list[Requirement]) -> list[str]:
        """What is wanted and not here, directly or by a package that is, as this system's markers say."""
        missing: list[str] = []
        waiting, seen = list(wanted), set[tuple[str, frozenset[str]]]()
        while waiting:
            each = waiting.pop()
            name = canonicalize_name(each.name)
            if not _holds(each, "") or (name, frozenset(each.extras)) in seen:
                continue
            seen.add((name, frozenset(each.extras)))
            if name not in self.packages or not each.specifier.contains(self.version(name), prereleases=True):
                missing.append(str(each))
                continue
            for line in importlib.metadata.requires(name) or []:
                below = Requirement(line)
                if any(_holds(below, extra) for extra in ("", *each.extras)):
                    below.marker = None
                    waiting.append(below)
        return missing


def _holds(requirement: Requirement, extra: str) -> bool:
    environment: dict[str, str] = {name: str(value) for name, value in default_environment().items()}
    environment["extra"] = extra
    return requirement.marker is None or requirement.marker.evaluate(environment)


def wanted_by(name: str) -> list[Requirement]:
    if name == "build.txt":
        return [Requirement(line) for line in build_requirements().splitlines()]
    source, _ = LOCKS[name]
    project = tomllib.loads((PROJECT / source).read_text(encoding="utf-8"))["project"]
    return [Requirement(line) for line in project["dependencies"]]


def pinned() -> dict[str, str]:
    lines = [line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_in_step_with_the_project_and_with_what_was_tested(name: str) -> None:
    locked = Locked((REQUIREMENTS / name).read_text(encoding="utf-8"))
    assert len(locked.packages) > 4
    assert locked.faults(wanted_by(name), pinned()) == []


@pytest.mark.parametrize(
    ("package", "before", "after", "said"),
    [
        ("httpx", r"==\S+", "==0.1", "was not tested"),
        ("httpx", r"(?s).*", "", "is missing"),
        ("h11", r"(?s).*", "", "is missing"),
        ("h11", r" --hash=\S+ *(\\\n)?", " ", "has no hash"),
    ],
)
def test_a_lock_that_is_out_of_step_is_found(package: str, before: str, after: str, said: str) -> None:
    text = (REQUIREMENTS / "relay.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{package}==.*\n(?: .*\n)*", text, re.MULTILINE)
    assert found is not None
    changed = re.sub(before, after, found[0], count=0 if "hash" in before else 1)
    faults = Locked(text.replace(found[0], changed.rstrip(" \\\n") + "\n")).faults(
        wanted_by("relay.txt"), pinned()
    )
    assert any(said in fault for fault in faults), faults

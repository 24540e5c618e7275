"""The manual pages are what the programs say, and a formatter reads them without a complaint."""

import subprocess
from shutil import which

import pytest

from scripts.make_man_pages import FOLDER, pages


@pytest.fixture(scope="module")
def current() -> dict[str, str]:
    return pages()


def test_the_pages_are_current(current: dict[str, str]) -> None:
    assert {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()} == current, (
        "run `make docs`"
    )


def test_every_command_is_in_them(current: dict[str, str]) -> None:
    assert '.SS "crystal devices revoke' in current["crystal.1"]
    assert '.SS "crystal\\-relay serve' in current["crystal-relay.1"]
    assert "debug" not in current["crystal.1"]


@pytest.mark.parametrize("name", ["crystal.1", "crystal-relay.1"])
@pytest.mark.parametrize(
    "formatter",
    [["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-ww", "-z", "-K", "utf8"]],
    ids=str,
)
def test_a_formatter_has_nothing_to_complain_about(formatter: list[str], name: str) -> None:
    if which(formatter[0]) is None:
        pytest.skip(f"there is no {formatter[0]}")
    done = subprocess.run(
        [*formatter, str(FOLDER / name)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

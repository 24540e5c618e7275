"""The checker of the house rules sees each breach. The linters of `make check` and `make test` run it on the project."""

from pathlib import Path

import pytest

from scripts.check_house_rules import MODULE_LINES_MAX, SOURCE_FOLDERS, check_module, check_tree


def test_all_folders_of_a_project_are_checked(tmp_path: Path) -> None:
    for folder in SOURCE_FOLDERS:
        (tmp_path / folder / "deep").mkdir(parents=True)
        (tmp_path / folder / "deep" / "mute.py").write_text("x = 1\n", encoding="utf-8")
    breaches = check_tree(tmp_path)
    assert {(breach.path.parts[0], breach.rule) for breach in breaches} == {
        (folder, "docstring") for folder in SOURCE_FOLDERS
    }


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        ("length", "core/crystal_core/long.py", '"""Doc."""\n' + "x = 1\n" * MODULE_LINES_MAX),
        ("docstring", "core/crystal_core/mute.py", "x = 1\n"),
        ("name", "core/crystal_core/utils.py", '"""Doc."""\n'),
        (
            "environment",
            "core/crystal_core/a.py",
            '"""Doc."""\nimport os\n\n\ndef f():\n    return os.environ["A"]\n',
        ),
        ("environment", "relay/crystal_relay/a.py", '"""Doc."""\nfrom os import getenv\n'),
        ("environment", "node/crystal_node/client.py", '"""Doc."""\nimport os\nA = os.getenv("A")\n'),
        (
            "import-time",
            "node/crystal_node/surfaces/cli.py",
            '"""Doc."""\nfrom pathlib import Path\nHOME = Path.home()\n',
        ),
        (
            "import-time",
            "node/crystal_node/a.py",
            '"""Doc."""\n\n\ndef f(now=time.time()):\n    return now\n',
        ),
        (
            "decoding",
            "core/crystal_core/a.py",
            '"""Doc."""\ntry:\n    pass\nexcept (OSError, msgspec.DecodeError, UnicodeDecodeError):\n    pass\n',
        ),
        ("unfinished", "tests/core/test_a.py", '"""Doc."""\nx = 1  # TO' + "DO: later\n"),
    ],
)
def test_a_breach_is_seen(rule: str, path: str, source: str) -> None:
    assert rule in {breach.rule for breach in check_module(Path(path), source)}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "node/crystal_node/surfaces/cli.py",
            '"""Doc."""\nimport os\n\n\ndef f():\n    return os.environ["A"]\n',
        ),
        (
            "core/crystal_core/a.py",
            '"""Doc."""\ntry:\n    pass\nexcept (MsgspecError, UnicodeDecodeError, RecursionError):\n    pass\n',
        ),
        ("core/crystal_core/b.py", '"""Doc."""\ntry:\n    pass\nexcept (OSError, *UNDECODABLE):\n    pass\n'),
        (
            "node/crystal_node/surfaces/cli/search.py",
            '"""Doc."""\nimport os\n\n\ndef f():\n    return os.getenv("A")\n',
        ),
        (
            "relay/crystal_relay/cli/serve.py",
            '"""Doc."""\nimport os\n\n\ndef f():\n    return os.getenv("A")\n',
        ),
        ("core/crystal_core/a.py", '"""Doc."""\nimport time\n\n\ndef f():\n    return time.time()\n'),
        ("core/crystal_core/a.py", '"""Doc."""\nclock = lambda: time.time()\n'),
        ("core/crystal_core/full.py", '"""Doc."""\n' + "x = 1\n" * (MODULE_LINES_MAX - 1)),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert check_module(Path(path), source) == []

"""The example of `docs/adapters.md` holds what every adapter must, and the page names each tool."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from crystal_node.capture.adapter import Adapter
from crystal_node.capture.drop import DropFolder
from tests.contract.adapter_contract import AdapterContract, Conversation
from tests.node.capture.kept import HOME as KEPT_HOME
from tests.node.capture.kept import KEPT
from tests.node.capture.tools import HOME, SESSION, Tool

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """The page's adapter, run from a file as it stands there."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path_factory.mktemp("page") / "skiff_of_the_page.py"
    path.write_text(code, encoding="utf-8")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)

    def adapter(root: Path) -> Adapter:
        made: Adapter = module.Skiff(root, HOME)
        return made

    return Tool("skiff", adapter, f"logs/{SESSION}.jsonl", ({"skiff": 1, "kind": "open"},), _asked)


def _asked(number: int, text: str) -> dict[str, Any]:
    minutes, seconds = divmod(number, 60)
    return {"kind": "asked", "text": text, "timestamp": f"2026-02-06T00:{minutes:02}:{seconds:02}Z"}


class TestTheExampleOfThePage(AdapterContract):
    """Through the whole contract, but for its name, which is no real tool's."""

    def test_it_has_a_name_a_title_and_folders(self, talk: Conversation) -> None:
        assert (talk.adapter.name, talk.adapter.title) == ("skiff", "Skiff")


def test_each_tool_has_a_row_that_says_how_its_form_is_known() -> None:
    rows = dict(re.findall(r"^\| ([^|]+?)(?: \(command line\))? \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE))
    for kept in KEPT:
        adapter = kept.adapter(Path("x"), KEPT_HOME)
        if adapter.name == DropFolder.name:
            continue
        real = kept.folder.startswith("real/")
        assert ("**not seen run**" not in rows[adapter.title]) == real
        assert ("seen run: " in rows[adapter.title]) == real

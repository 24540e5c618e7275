"""The contract of adapters, held by each of them."""

import pytest

from tests.contract.adapter_contract import AdapterContract
from tests.node.capture.tools import TOOLS, Tool


@pytest.fixture(params=TOOLS, ids=str)
def tool(request: pytest.FixtureRequest) -> Tool:
    found: Tool = request.param
    return found


class TestAdapters(AdapterContract):
    """All tools."""

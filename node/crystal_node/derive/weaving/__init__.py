"""The Dream Weaver on a device: `weave` for one run, `llm_of` for whoever needs a language model.

    from crystal_node.derive.weaving import WeaveMode, WeaveRequest, llm_of, weave

    result = await weave(device, WeaveRequest(agent="codex", mode=WeaveMode.FULL), progress)

``weave`` works on the Core. Killed anywhere, the same call goes on where it was; what was paid for is not paid again.
"""

from crystal_node.derive.weaving.models import llm_of
from crystal_node.derive.weaving.request import (
    Progress,
    WeaveMode,
    WeaveRequest,
    WeaveResult,
    WeaveState,
    unheard,
)
from crystal_node.derive.weaving.weave import weave

__all__ = [
    "Progress",
    "WeaveMode",
    "WeaveRequest",
    "WeaveResult",
    "WeaveState",
    "llm_of",
    "unheard",
    "weave",
]

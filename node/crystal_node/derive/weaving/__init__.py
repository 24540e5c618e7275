"""The Dream Weaver on a device: ``weave`` is one run on the Core.

    from crystal_node.derive.weaving import WeaveMode, WeaveRequest
    from crystal_node.derive.weaving.weave import weave  # apart: a service at rest needs no weaver

    result = await weave(device, WeaveRequest(agent="codex", mode=WeaveMode.FULL), progress)

A run that was killed goes on with the next call; tokens that were paid for are not paid again.
"""

from crystal_node.derive.weaving.request import (
    Progress,
    WeaveMode,
    WeaveRequest,
    WeaveResult,
    WeaveState,
    unheard,
)

__all__ = [
    "Progress",
    "WeaveMode",
    "WeaveRequest",
    "WeaveResult",
    "WeaveState",
    "unheard",
]

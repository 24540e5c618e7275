"""The background job of the bridge."""

import asyncio

from crystal_node.base.jobs import Job
from crystal_node.base.wording import counted
from crystal_node.device.bridge import read_bridge
from crystal_node.device.device import Device

EVERY_SECONDS = 60.0
"""As often as the prototype's own poller asks."""


def jobs(device: Device) -> list[Job]:
    async def take_in() -> str:
        from crystal_prototype.bridge import Bridge

        bridge = Bridge.of(device)
        if bridge is None:
            return ""
        done = await asyncio.to_thread(bridge.run)
        return f"{counted(done.messages, 'message')} from {counted(done.drops, 'drop')}" if done.drops else ""

    return [
        Job(
            name="bridge",
            what="Takes in what devices of the published prototype drop at their relay.",
            every=EVERY_SECONDS,
            run=take_in,
            due=lambda: read_bridge(device.journal) is not None,
        )
    ]

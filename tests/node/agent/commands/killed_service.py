"""A desk whose action says that it runs, and never ends, to be killed:
`python -m tests.node.agent.commands.killed_service ACTION MARK`.

The home is the environment's.
"""

import asyncio
import sys
from pathlib import Path

from crystal_mirror.commands.messages import Action, Arguments
from crystal_node.agent.commands.service import ActionResult, CommandService, Tell
from crystal_node.base.settings import resolve
from crystal_node.device.device import opened
from crystal_node.sync.syncer import syncing
from tests.support.silence import silent


async def serve(action: Action, mark: Path) -> None:
    async def hang(_arguments: Arguments, _tell: Tell) -> ActionResult:
        with mark.open("a") as file:
            file.write("began\n")
        await asyncio.Event().wait()
        raise AssertionError("it hangs")

    with opened(resolve()) as device:
        async with syncing(device, "a desk that is killed") as syncer:
            await CommandService(device, syncer, {action: hang}, silent).run()


if __name__ == "__main__":
    asyncio.run(serve(Action(sys.argv[1]), Path(sys.argv[2])))

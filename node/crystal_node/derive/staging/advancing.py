"""One run of staging: look, make, move on; then weave, which takes long and keeps nobody waiting; then note how it went."""

import logging
from collections.abc import Callable

from crystal_crypto.errors import CrystalError
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import HomeBusy, describe, passes
from crystal_node.base.settings import Settings
from crystal_node.base.settings.again import options_again
from crystal_node.derive.artefacts.builder import Tell, unheard, workshop
from crystal_node.derive.catalog.agents import Weave
from crystal_node.derive.staging.service import Desk, Moves, Weaver
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow

_log = logging.getLogger("crystal_node.derive.staging")

NOTING_SECONDS = 60.0
"""How long it may take until somebody else has finished making files."""


async def advance(
    device: Device,
    settings: Settings,
    weaver: Weaver,
    *,
    only: str | None = None,
    before: Callable[[Desk], None] | None = None,
    tell: Tell = unheard,
    progress: Tell = unheard,
    wait_seconds: float = 0.0,
) -> Moves:
    """Moves all staged agents, or one, as far as they go. ``before`` runs first, at the same desk.

    Raises:
        HomeBusy: another process makes files. NoRoom, and what the databases raise.
    """
    async with workshop(device, settings, tell=tell, wait_seconds=wait_seconds) as shop:
        desk = Desk(shop)
        looked = await shop.look(now_ms())
        if looked.behind:
            return Moves(["the memory is being made anew: staging waits"])
        if before is not None:
            before(desk)
        await shop.make(now_ms(), progress)
        moves = await desk.move_on(now_ms(), only)
    for agent, how in moves.weaving:
        why_not = await _woven(weaver, agent, how)
        if why_not is None:
            continue
        async with workshop(device, settings, tell=tell, wait_seconds=NOTING_SECONDS) as shop:
            desk = Desk(shop)
            desk.woven(agent, why_not, now_ms())
            desk.clean()
            moves.lines.append(f"{agent[:60]!r}: {desk.named(agent).words}")
    return moves


async def _woven(weaver: Weaver, agent: str, how: Weave) -> str | None:
    """Why it did not come to its end, "" if it did, None if it is to be tried again: somebody else is at it, or it is private
    now. One agent's failure, whatever it is, keeps no other from being woven; what is of the whole home is raised."""
    try:
        return await weaver(agent, how)
    except (HomeBusy, PrivateNow):
        return None
    except CrystalError as error:
        return describe(error).message
    except Exception as error:
        if passes(error):
            raise
        _log.exception("weaving a staged agent: a mistake in Crystal")
        return f"a mistake in Crystal: {type(error).__name__}"


def dream_weaver(device: Device, progress: Tell = unheard) -> Weaver:
    """The Dream Weaver, as staging calls it: everything there is, with a language model or without any, as was said."""

    async def run(agent: str, how: Weave) -> str:
        from crystal_node.derive import weaving

        if how is Weave.LLM and not await _has_model(device):
            return "no language model was found (`crystal config set llm_provider`), and one was wanted"
        request = weaving.WeaveRequest(
            agent=agent,
            mode=weaving.WeaveMode.FULL,
            provider="none" if how is Weave.EXTRACTIVE else "",
            needs_model=how is Weave.LLM,
        )
        result = await weaving.weave(device, request, lambda text, _done, _total: progress(text))
        return result.text if result.state is weaving.WeaveState.BUDGET else ""

    return run


async def _has_model(device: Device) -> bool:
    """Raises LlmError: the one that is configured cannot be used."""
    import asyncio

    from crystal_node.derive.weaving import llm_of

    llm = await asyncio.to_thread(llm_of, options_again(device.settings))
    if llm is not None:
        await llm.aclose()
    return llm is not None

"""One run of the Dream Weaver on this device, which must be the Core.

One process of a home weaves at a time; another raises HomeBusy. The memory is read in threads on connections of their own, so
that the background service goes on with everything else.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo

from crystal_core.database import Database
from crystal_core.llm.port import Llm, Unavailable
from crystal_core.llm.prices import price_of
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.documents import NO_MODEL
from crystal_core.weaver.engine import batch_bytes, count_batches, weave_with
from crystal_core.weaver.estimate import Estimate, estimated
from crystal_core.weaver.extract import BATCH_BYTES, extract
from crystal_core.weaver.ports import Plan, Ports
from crystal_core.weaver.records import Method, Spent
from crystal_core.weaver.runs import FULL, Woven, run_to_go_on, unread_sources
from crystal_core.weaver.sources import Said, WeaverSource, list_sources, load
from crystal_node.base.agent_names import agent_alias
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.home import Home
from crystal_node.base.locking import FileLock
from crystal_node.base.settings import with_current_options
from crystal_node.base.wording import counted, one_line
from crystal_node.derive.weaving.forget import remove_forgotten
from crystal_node.derive.weaving.output import DeviceOutput, hand_on, take_over
from crystal_node.derive.weaving.request import (
    Progress,
    WeaveMode,
    WeaveRequest,
    WeaveResult,
    WeaveState,
    unheard,
)
from crystal_node.device.activity import Activity, note
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow, read_privacy
from crystal_node.models.llm.discovery import find_llm
from crystal_node.sync.members.rights import check_is_core

BUDGET_MIN = 1_000
_PURPOSE = "crystal dream-weave"


async def weave(device: Device, request: WeaveRequest, progress: Progress = unheard) -> WeaveResult:
    """Weaves what an agent said, or continues an interrupted run. With ``dry_run`` it only estimates.

    Raises:
        NotAllowed: this device is not the Core.
        PrivateNow: private mode is on.
        NoSuchEntry: the named agent said nothing here.
        HomeBusy: another process weaves.
        LlmError: there is no such model, or it failed; what was done is kept and the next run goes on.
    """
    check_is_core(device, "weaves")
    _check_public(device)
    if request.budget and request.budget < BUDGET_MIN:
        raise UsageError(f"a budget of {request.budget} tokens is too small for anything")
    # In the background service a person may have turned the model off since it started.
    settings = with_current_options(device.settings)
    agent = request.agent or settings.agent_id
    zone = settings.capture.zone()
    llm = await asyncio.to_thread(find_llm, settings, request.provider)
    if llm is None and request.needs_model:
        raise Unavailable(
            "there is no language model here, and one is wanted",
            hint="Start MLX or Ollama, give a key, or set llm_provider; or weave without a model: an extract.",
        )
    try:
        with (
            FileLock(settings.home.state / "weaver.lock", purpose=_PURPOSE),
            open_database(settings.home) as database,
        ):
            remove_forgotten(device, database)
            sources = await asyncio.to_thread(_listed, device, agent, zone)
            if not sources and (alias := agent_alias(agent)) is not None:
                sources = await asyncio.to_thread(_listed, device, alias, zone)
                agent = alias if sources else agent
            if not sources and request.agent:
                raise NoSuchEntry(
                    f"there is nothing here that agent {agent[:60]!r} said",
                    hint="`crystal search --agent ID …` and the folders below agents/ show which there are.",
                )
            plan = Plan(
                agent,
                request.mode is WeaveMode.FULL,
                request.since,
                sources,
                zone,
                request.budget or settings.dreams.tokens_max,
                os.urandom(4).hex(),
            )
            return await _run(device, request, plan, database, llm, progress)
    finally:
        if llm is not None:
            await llm.aclose()


def open_database(home: Home) -> WeaverDatabase:
    """``weaver.db``."""
    return WeaverDatabase.open(home.weaver_database)


async def _run(
    device: Device,
    request: WeaveRequest,
    plan: Plan,
    database: WeaverDatabase,
    llm: Llm | None,
    progress: Progress,
) -> WeaveResult:
    started = time.monotonic()

    async def texts(sources: Sequence[WeaverSource]) -> list[Said]:
        return await asyncio.to_thread(_loaded, device, plan.agent, sources)

    def allowed() -> None:
        check_is_core(device, "weaves")
        _check_public(device)

    output = DeviceOutput(device, database, plan.agent, allowed)
    ports = Ports(database, texts, output, now_ms, progress)
    take_over(output, database, plan.agent, now_ms())
    method = Method.EXTRACTIVE if llm is None else Method.MODEL
    before = run_to_go_on(ports, plan, method)
    if request.dry_run:
        estimate = _estimate(ports, plan, llm)
        return _result(plan, llm, WeaveState.DRY_RUN, None, None, time.monotonic() - started, estimate)
    spent_before = database.spent(before.id) if before is not None else Spent(0, 0, 0, 0)
    woven = await (extract(ports, plan) if llm is None else weave_with(llm, ports, plan))
    if woven.run is not None and llm is not None and not woven.stopped and not woven.run.since:
        hand_on(output, database, woven.run, plan.sources, now_ms())
    if woven.run is not None:
        note(device.journal, Activity.WEAVE, now_ms())
        device.settings.home.nudge()  # the new files are to travel
    state = WeaveState.BUDGET if woven.stopped else WeaveState.DONE if woven.run else WeaveState.NOTHING
    spent = _minus(database.spent(woven.run.id), spent_before) if woven.run else Spent(0, 0, 0, 0)
    return _result(plan, llm, state, woven, spent, time.monotonic() - started, None)


def _estimate(ports: Ports, plan: Plan, llm: Llm | None) -> Estimate:
    method = Method.EXTRACTIVE if llm is None else Method.MODEL
    left = unread_sources(ports, plan, method, run_to_go_on(ports, plan, method))
    batches = count_batches(left, BATCH_BYTES if llm is None else batch_bytes(llm))
    sessions = len({one.session for one in left})
    identity = None if llm is None else llm.identity
    return estimated(sessions, len(left), sum(one.size for one in left), batches, identity)


def _result(
    plan: Plan,
    llm: Llm | None,
    state: WeaveState,
    woven: Woven | None,
    spent: Spent | None,
    seconds: float,
    estimate: Estimate | None,
) -> WeaveResult:
    identity = None if llm is None else llm.identity
    price = None if identity is None else price_of(identity.provider, identity.model, local=identity.local)
    spent = spent or Spent(0, 0, 0, 0)
    outcomes = woven.outcomes if woven is not None else ()
    full = woven.run.mode == FULL if woven is not None and woven.run is not None else plan.full
    result = WeaveResult(
        agent=plan.agent,
        mode=WeaveMode.FULL if full else WeaveMode.INCREMENTAL,
        state=state,
        model=str(identity) if identity is not None else NO_MODEL,
        sessions_processed=woven.sessions_done if woven is not None else 0,
        sessions_left=woven.sessions_left if woven is not None else (estimate.sessions if estimate else 0),
        journals=woven.journals if woven is not None else (),
        identity_created=woven is not None and woven.identity_created,
        context_updated=woven is not None and woven.context_updated,
        memories_extracted=sum(outcome.remembered for outcome in outcomes),
        seconds=seconds,
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
        dollars=0.0
        if identity is None
        else price.dollars(spent.tokens_in, spent.tokens_out)
        if price
        else None,
        quotations_cut=sum(outcome.cut for outcome in outcomes),
        unread=woven.unread if woven is not None else 0,
        maybe_paid=spent.lost,
        tokens_maybe_paid=spent.unsure,
        estimate=estimate,
    )
    return _told(result)


def _told(result: WeaveResult) -> WeaveResult:
    """With a sentence for people. Names of agents and models are foreign text."""
    left, agent, model = result.sessions_left, one_line(result.agent, 60), one_line(result.model, 100)
    texts = {
        WeaveState.NOTHING: f"Nothing new of {agent}.",
        WeaveState.DRY_RUN: f"{counted(left, 'conversation')} of {agent} to read.",
        WeaveState.BUDGET: f"Stopped by the budget, {counted(left, 'session')} left"
        + ("." if left else ": all is read, but not all pages are written."),
        WeaveState.DONE: (
            f"{counted(result.sessions_processed, 'session')} of {agent} "
            f"{'taken over' if result.model == NO_MODEL else 'woven'} ({model}): "
            f"{counted(len(result.journals), 'journal')}, "
            f"{counted(result.memories_extracted, 'memory', 'memories')}."
        ),
    }
    return replace(result, text=texts[result.state])


def _minus(all_of_it: Spent, before: Spent) -> Spent:
    return Spent(
        all_of_it.tokens_in - before.tokens_in,
        all_of_it.tokens_out - before.tokens_out,
        all_of_it.unsure,
        all_of_it.lost,
    )


def _listed(device: Device, agent: str, zone: tzinfo) -> list[WeaverSource]:
    with Database.open(device.settings.home.database) as database:
        return list_sources(database, agent, zone)


def _loaded(device: Device, agent: str, sources: Sequence[WeaverSource]) -> list[Said]:
    with Database.open(device.settings.home.database) as database, database.snapshot():
        return load(database, agent, sources)


def _check_public(device: Device) -> None:
    if read_privacy(device.journal).on:
        raise PrivateNow("private mode is on: nothing is woven")

"""Runs, with or without a model: which one continues or begins, its unread sources, its result."""

from dataclasses import dataclass
from hashlib import sha256

from crystal_core.weaver.documents import IDENTITY, journal, journal_name
from crystal_core.weaver.ports import Plan, Ports
from crystal_core.weaver.records import BatchOutcome, Method, Run, RunState, decode_outcome
from crystal_core.weaver.sources import WeaverSource

FULL = "full"
INCREMENTAL = "incremental"


@dataclass(frozen=True, slots=True)
class Woven:
    """Result of a call of the engine. ``run`` None: there was nothing to read."""

    run: Run | None
    stopped: bool
    sessions_done: int
    sessions_left: int
    journals: tuple[str, ...]
    identity_created: bool
    context_updated: bool
    outcomes: tuple[BatchOutcome, ...]
    unread: int


def unread_sources(ports: Ports, plan: Plan, method: Method, run: Run | None) -> list[WeaverSource]:
    """Return the sources left to read for ``run``, or for the one that would begin now."""
    full = run.mode == FULL if run is not None else plan.full
    since = run.since if run is not None else plan.since
    methods = (Method.MODEL,) if method is Method.MODEL else tuple(Method)
    if not full:
        done = ports.database.done_keys(plan.agent, methods)
    elif run is not None:
        done = ports.database.done_keys(plan.agent, methods, run.id)
    else:
        done = set[bytes]()
    until = 0 if full else ports.database.assumed_until(plan.agent)
    return [
        one
        for one in plan.sources
        if one.key not in done and (not since or one.moment >= since) and (not until or one.moment > until)
    ]


def run_to_go_on(ports: Ports, plan: Plan, method: Method) -> Run | None:
    """Return the unfinished run that this call continues. A requested full run only continues an equal full run."""
    found = ports.database.unfinished(plan.agent, method)
    if found is None or not plan.full or (found.mode == FULL and found.since == plan.since):
        return found
    return None


def take_up(ports: Ports, plan: Plan, method: Method) -> Run:
    """Return that run or a new one. A leg ended by a crash continues with its budget; one stopped by its budget is over."""
    found = run_to_go_on(ports, plan, method)
    if found is not None:
        leg = found.leg if found.state is RunState.OPEN else found.leg + 1
        ports.database.set_run(found.id, RunState.OPEN, leg)
        return Run(
            found.id,
            found.agent,
            found.method,
            found.mode,
            found.since,
            RunState.OPEN,
            leg,
            found.identity_new,
        )
    given_up = ports.database.unfinished(plan.agent, method)
    if given_up is not None:
        ports.database.set_run(given_up.id, RunState.ABANDONED, given_up.leg)
    run = Run(
        plan.new_id,
        plan.agent,
        method,
        FULL if plan.full else INCREMENTAL,
        plan.since,
        RunState.OPEN,
        1,
        ports.output.read(IDENTITY) is None,
    )
    ports.database.begin(run, ports.now_ms())
    return run


def write_journals(ports: Ports, plan: Plan, run: Run, day: str = "") -> tuple[str, ...]:
    """Write the journals of a run, or of one of its days, from the database. Returns their names."""
    by_day: dict[str, list[BatchOutcome]] = {}
    for when, data in ports.database.outcomes(run.id, day):
        by_day.setdefault(when, []).append(decode_outcome(data))
    names: list[str] = []
    for when, outcomes in by_day.items():
        telling = [outcome for outcome in outcomes if outcome.pieces]
        if telling:
            names.append(journal_name(when, run.id))
            text = journal(plan.agent, when, run.id, telling, plan.zone)
            ports.output.write(names[-1], text, run.method, run.id)
    return tuple(names)


def woven(
    ports: Ports, plan: Plan, run: Run, *, stopped: bool, context_updated: bool, unread: int = 0
) -> Woven:
    """Return the result of a call of the engine, from the database."""
    left = {one.session for one in unread_sources(ports, plan, run.method, run)}
    opened = ports.database.open_batch(run.id)
    if opened is not None:
        keys = frozenset(opened.keys)
        left |= {one.session for one in plan.sources if one.key in keys}
    outcomes = [(day, decode_outcome(data)) for day, data in ports.database.outcomes(run.id)]
    days = dict.fromkeys(day for day, outcome in outcomes if outcome.pieces)
    return Woven(
        run,
        stopped,
        ports.database.sessions_done(run.id),
        len(left),
        tuple(journal_name(day, run.id) for day in days),
        run.identity_new and ports.output.read(IDENTITY) is not None,
        context_updated,
        tuple(outcome for _, outcome in outcomes),
        unread + sum(outcome.unread for _, outcome in outcomes),
    )


def session_mark(session: str) -> bytes:
    """Return the hash by which the database knows a session."""
    return sha256(session.encode("utf-8", "surrogatepass")).digest()[:8]

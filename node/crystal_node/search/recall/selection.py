"""Selection of what is recalled: for a prompt what answers it (``prompt``), for a session what its project left off with
(``start``), for a sub-agent what is remembered there, for a failed call what went well after the same failure (``failure``).

Never what the session has already: its own messages, what it was given before (``database``), and near duplicates. Never a text
of another project (``place``), unless a memory says that it holds everywhere or the person linked the two. So the agent's
context, which is woven of all that it did, is given only where it did all of that in the session's project.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

import apsw

from crystal_core.database import Database
from crystal_core.projects import said_only_in
from crystal_crypto.errors import CrystalError
from crystal_node.base.agent_names import agent_alias
from crystal_node.base.errors import describe
from crystal_node.base.project import Project
from crystal_node.base.settings import Settings
from crystal_node.capture.json_values import as_object, as_text
from crystal_node.capture.private_words import without_private
from crystal_node.device.repositories import key_of
from crystal_node.search.finding.deep_outcome import forget_mark
from crystal_node.search.finding.documents import MemorySearch
from crystal_node.search.recall.database import RecallDatabase
from crystal_node.search.recall.failure import WORDS_MIN, Failure, solution
from crystal_node.search.recall.hook import NOTHING, Given, HookEvent, HookInput, Recalled
from crystal_node.search.recall.place import place_of, searched_projects, unlinked_line
from crystal_node.search.recall.prompt import QUERY_CHARS_MAX, chosen, request_for
from crystal_node.search.recall.start import at_start, read_context, remembered
from crystal_node.search.recall.text import PROMPT_TOKENS_MAX, headline, loaded, not_searched, record_of
from crystal_node.search.recall.words import asks_something
from crystal_node.search.tokens import estimated_tokens

T = TypeVar("T")


def moment_ms(moment: str) -> int:
    """Milliseconds since 1970 of a moment as results have it; 0 if it has none."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000) if moment else 0


class RecallMemory(MemorySearch, Protocol):
    """The memory that is asked, by searches and by queries of its database."""

    def read(self, work: Callable[[Database], T]) -> T:
        """Run queries in one snapshot. Raises VaultDataError."""
        ...


def recall(
    hook: HookInput,
    settings: Settings,
    searching: Callable[[], RecallMemory],
    now_ms: int,
    *,
    words_only: bool = False,
) -> Recalled:
    """The text for the agent. ``words_only``: no model is loaded for it. Note it with ``told`` once it is printed.

    Never raises for what can go wrong with a memory: that is said in the answer.
    """
    if not settings.searching.recall or settings.vault is None:
        return NOTHING
    try:
        database = RecallDatabase.open(settings.home.recall_database)
        try:
            return _Recalling(settings, searching(), database, words_only=words_only).recalled(hook)
        finally:
            database.close()
    except (CrystalError, apsw.Error, OSError) as error:
        why = describe(error).message
        return Recalled(not_searched(why), f"Crystal could not search its memory: {why}")


class _Recalling:
    """One hook's answer."""

    def __init__(
        self, settings: Settings, memory: RecallMemory, database: RecallDatabase, *, words_only: bool
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._database = database
        self._words_only = words_only

    def recalled(self, hook: HookInput) -> Recalled:
        place = place_of(hook.cwd, self._settings.person_home)
        match hook.event:
            case HookEvent.PROMPT:
                return self._for_prompt(hook, place)
            case HookEvent.FAILURE:
                return self._for_failure(hook, place)
            case HookEvent.SUBAGENT:
                return self._for_subagent(hook, place)
            case _:
                pass
        if hook.source in ("clear", "compact"):
            self._database.clear(hook.session_id)
        return self._at_start(hook, place)

    def _for_prompt(self, hook: HookInput, place: Project) -> Recalled:
        prompt = without_private(hook.prompt)[:QUERY_CHARS_MAX]
        if not asks_something(prompt):
            return NOTHING  # "yes", "go on": nothing to look for, and nothing to say about it
        projects, mark = self._memory.read(
            lambda database: (
                searched_projects(database, key_of(database, place)),
                forget_mark(database),
            )
        )
        found = self._memory.search(request_for(prompt, projects, words_only=self._words_only))
        given = self._given(hook.session_id, [result.id for result in found.results])
        results = chosen(found, given, hook.session_id)
        text, ids = loaded(map(record_of, results), PROMPT_TOKENS_MAX)
        by_id = {result.id: result for result in results}
        return Recalled(
            text,
            headline(len(ids)) if ids else "",
            HookEvent.PROMPT,
            hook.session_id,
            found.mode,
            prompt,
            tuple(Given(name, "fits the prompt", by_id[name].relevance, by_id[name].score) for name in ids),
            estimated_tokens(text),
            mark,
        )

    def _for_failure(self, hook: HookInput, place: Project) -> Recalled:
        command = as_text(as_object(hook.tool_input).get("command")) or ""
        failure = Failure(hook.tool_name, command, hook.error)
        if hook.is_interrupt or len(failure.words) < WORDS_MIN:
            return NOTHING
        projects, mark = self._memory.read(
            lambda database: (searched_projects(database, key_of(database, place)), forget_mark(database))
        )
        if not projects:
            return NOTHING
        found = self._memory.search(failure.request(projects))
        for result in found.results:
            if result.session == hook.session_id or not failure.is_same(result):
                continue
            record = self._memory.read(partial(solution, failed=result, at=moment_ms(result.created_at)))
            if record is None or self._given(hook.session_id, [record.id]):
                continue
            text, ids = loaded([record], PROMPT_TOKENS_MAX)
            return Recalled(
                text,
                "",
                HookEvent.FAILURE,
                hook.session_id,
                "",  # no prompt: it does not count as one
                command,
                tuple(Given(name, "the same failure", result.relevance, result.score) for name in ids),
                estimated_tokens(text),
                mark,
            )
        return NOTHING

    def _for_subagent(self, hook: HookInput, place: Project) -> Recalled:
        """What is remembered: a sub-agent begins with nothing of what its session was told, and the hook knows nothing of its
        task."""
        told = f"{hook.session_id}/{hook.agent_id}"

        def read(database: Database) -> tuple[str, list[Given], str]:
            projects = searched_projects(database, key_of(database, place))
            text, records = remembered(database, projects, lambda ids: self._given(told, ids))
            return text, records, forget_mark(database)

        text, records, mark = self._memory.read(read)
        return Recalled(
            text,
            "",
            HookEvent.SUBAGENT,
            told,
            given=tuple(records),
            tokens=estimated_tokens(text),
            forget_mark=mark,
        )

    def _at_start(self, hook: HookInput, place: Project) -> Recalled:
        resumed = hook.source in ("resume", "compact")
        agent, context = self._settings.agent_id, ""
        for name in (agent, agent_alias(agent)):
            if name is not None and not (resumed or context):
                agent, context = name, read_context(self._settings.home.agents / name / "CONTEXT.md")

        def read(database: Database) -> tuple[str, list[Given], str, str]:
            projects = searched_projects(database, key_of(database, place))
            fits = bool(context) and said_only_in(database, agent, projects)
            text, records = at_start(
                database,
                projects,
                hook.session_id,
                lambda ids: self._given(hook.session_id, ids),
                context if fits else "",
            )
            return text, records, forget_mark(database), unlinked_line(database, place)

        text, records, mark, unlinked = self._memory.read(read)
        if not (text or unlinked):
            return NOTHING
        line = headline(len(records)) if records else "Crystal loaded the agent's context." if text else ""
        if hook.source == "compact":
            line = unlinked = ""  # the work goes on: its person has asked for nothing
        line = " ".join(part for part in (line, unlinked) if part)
        return Recalled(
            text,
            line,
            HookEvent.START,
            hook.session_id,
            given=tuple(records),
            tokens=estimated_tokens(text),
            forget_mark=mark,
        )

    def _given(self, session: str, ids: list[str]) -> set[str]:
        """Those of the ids that the session has."""
        return self._database.given(session, ids) if session else set()

"""Requests checked before a search: limits, in words for people, and filters.

The schema's own checks come after these, for requests of other programs.
"""

from datetime import tzinfo
from pathlib import Path
from typing import TypeVar

from msgspec import ValidationError, convert, to_builtins

from crystal_core.memories import Category
from crystal_core.search.filters import Scope
from crystal_node.base.agent_names import agent_alias
from crystal_node.base.errors import UsageError
from crystal_node.base.lookup import no_id
from crystal_node.base.project import project_name
from crystal_node.base.settings.options import LLM_PROVIDERS
from crystal_node.base.text_ids import ID_CHARS_MAX, ID_DIGITS_MIN
from crystal_node.base.timespans import parse_since, parse_until
from crystal_node.search.finding.documents import (
    QUERY_CHARS_MAX,
    SearchRequest,
    ShowRequest,
)
from crystal_node.search.finding.schema_errors import SchemaMismatch, error_text

_Request = TypeVar("_Request", SearchRequest, ShowRequest)


def within_limits(request: _Request) -> _Request:
    """The request, checked as if it had come from another program. Raises Usage."""
    if isinstance(request, SearchRequest):
        if not request.query.strip():
            raise UsageError(
                "the query is empty", hint='Give some words: crystal search "what we decided about backups"'
            )
        if len(request.query) > QUERY_CHARS_MAX:
            raise UsageError(
                f"the query has {len(request.query):,} characters, and may have {QUERY_CHARS_MAX:,}",
                hint="Say it in fewer words.",
            )
        try:
            request.query.encode()
        except UnicodeEncodeError as error:
            raise UsageError("the query has bytes that are no UTF-8", hint="Type its words again.") from error
        if request.provider and request.provider not in LLM_PROVIDERS:
            raise UsageError(
                f"there is no provider {request.provider[:60]!r}",
                hint=f"Use one of {', '.join(LLM_PROVIDERS)}.",
            )
    elif not ID_DIGITS_MIN <= len(request.id) <= ID_CHARS_MAX:
        raise no_id(request.id)
    try:
        return convert(to_builtins(request), type(request))
    except ValidationError as error:
        raise SchemaMismatch(error_text(error, type(request))) from error


def scope_of(request: SearchRequest, now: int, person_home: Path, zone: tzinfo) -> Scope:
    """Raises Usage for a category or a time that is none, and for two times between which nothing can lie."""
    if request.category and request.category not in set(Category):
        raise UsageError(
            f"{request.category[:60]!r} is no category of memories",
            hint=f"Use one of {', '.join(Category)}.",
        )
    since = parse_since(request.since, now, zone) if request.since else None
    until = parse_until(request.until, now, zone) if request.until else None
    if since is not None and until is not None and since > until:
        raise UsageError(
            f"nothing is newer than {request.since[:60]} and older than {request.until[:60]}",
            hint="Swap the two, or leave one out.",
        )
    return Scope(
        agent=request.agent or None,
        project=_project(request.project, person_home) or None,
        session=request.session or None,
        role=request.role or None,
        kind=None if request.kind is None else request.kind.value,
        source=request.source or None,
        since_ms=since,
        until_ms=until,
        category=request.category or None,
        status=None if request.status is None else request.status.value,
        projects=None if request.projects is None else tuple(request.projects),
        agent_alias=agent_alias(request.agent),
    )


def _project(given: str, person_home: Path) -> str:
    """A folder of this machine by the name that it was recorded under; any other name unchanged."""
    if given == "~" or given.startswith("~/"):
        given = f"{person_home}{given[1:]}"
    return project_name(given, person_home) if given.startswith("/") else given.rstrip("/")

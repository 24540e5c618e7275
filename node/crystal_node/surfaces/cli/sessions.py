"""``crystal sessions``: the conversations of all machines, listed, read and written out."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from crystal_mirror.types import ACTION_ROLES
from crystal_node.base.clock import now_ms
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.home import write_private
from crystal_node.base.settings import resolve
from crystal_node.base.text_ids import SHOWN_DIGITS
from crystal_node.base.timespans import parse_since
from crystal_node.base.wording import clock_time, counted, iso, one_line, printable
from crystal_node.derive.sessions.copies import SessionCopies
from crystal_node.derive.sessions.layout import TOOLS
from crystal_node.search.conversation_documents import (
    CONVERSATIONS_MAX,
    MESSAGES_MAX,
    ConversationDocument,
    ConversationFilter,
    ConversationRequest,
    ConversationsRequest,
    MessageDocument,
    ValueCount,
)
from crystal_node.search.finding.client import MemoryClient, memory_client
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.sessions_copies import exact, retention
from crystal_node.surfaces.cli.sessions_restore import restore

group = typer.Typer(
    help="List, read, write out and restore conversations of all machines.",
    no_args_is_help=True,
    add_completion=False,
)

group.command("retention")(retention)
group.command("exact")(exact)

_ID_CHARS_MIN = 6
_TITLE_CHARS = 100
_ACTION_CHARS = 200
_VALUES_NAMED = 8


class Form(StrEnum):
    """How a conversation is written out."""

    MARKDOWN = "markdown"
    HTML = "html"


Project = Annotated[
    str,
    typer.Option("--project", metavar="PROJECT", help="Only of this repository or folder, or the end of it."),
]
Machine = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Only those recorded on this machine.")
]
Tool = Annotated[str, typer.Option("--tool", metavar="TOOL", help="Only those held with it, such as codex.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Only with something said since: 24h, yesterday, 2026-01-31."
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, max=CONVERSATIONS_MAX, help="At most so many.")
]
Session = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The id that `crystal sessions list` shows, or the tool's own; or its beginning."
    ),
]
FormOption = Annotated[
    Form, typer.Option("--format", help="Markdown, or one HTML file that needs nothing else.")
]
Target = Annotated[
    Path | None, typer.Option("--to", metavar="FILE", help="Write this new file; else to standard output.")
]


@group.command("list")
def list_(
    project: Project = "",
    device: Machine = "",
    tool: Tool = "",
    since: Since = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List conversations of all machines, the latest first.

    Works offline, and also for conversations whose tool has deleted its own record of them.

    Example:

        crystal sessions list --project tide-gauge --since "last week"
    """
    settings = resolve()
    day = ""
    if since is not None:
        zone = settings.capture.nameless_zone()
        day = datetime.fromtimestamp(parse_since(since, now_ms(), zone) / 1000, zone).date().isoformat()
    with memory_client(settings) as memory:
        there = memory.activity(ConversationFilter())
        asked = ConversationsRequest(
            project=_one_of(there.projects, project, "project", _ends_with) if project else "",
            device=_one_of(there.devices, device, "device", _is_called) if device else "",
            tool=_one_of(there.tools, tool, "tool", _is_called) if tool else "",
            since=day,
            limit=limit,
        )
        found = memory.conversations(asked)
    copies = SessionCopies(settings.home.root)
    grew = {each.id: _grew_last(copies, each) for each in found.conversations}
    if as_json:
        document = msgspec.to_builtins(found)
        for each in document["conversations"]:
            each["copy"] = grew[each["id"]]
        emit(document)
        return
    names = {each.value: each.name for each in there.devices}
    for each in found.conversations:
        say(
            f"{each.id[:SHOWN_DIGITS]}  {_moment(each.ended_at)}  {one_line(each.title or 'untitled', _TITLE_CHARS)}"
        )
        say(f"{'':{SHOWN_DIGITS}}  {_origin(each)}{_copy_words(grew[each.id], names)}")
    if not found.conversations:
        note("There are none.")
    elif found.total > len(found.conversations):
        note(f"{found.total} in all: --limit shows more.")


@group.command("show")
def show(session: Session, as_json: Json = False) -> None:
    """Show a conversation from its beginning.

    Works offline, on every machine. Of what the agent did each tool call is one line; `crystal show ID` shows it whole.

    Example:

        crystal sessions show 3f9a2c41d0e1
    """
    conversation, messages = _read(session)
    if as_json:
        emit(
            {
                "conversation": msgspec.to_builtins(conversation),
                "messages": msgspec.to_builtins(messages),
            }
        )
        return
    say(f"# {one_line(conversation.title or 'untitled', _TITLE_CHARS)}")
    say(f"# {_origin(conversation)}")
    for message in messages:
        shared = ", not shared yet" if message.provisional else ""
        speaker = " ".join(one_line(part, 60) for part in (message.role, message.model) if part)
        say(f"  {message.id[:SHOWN_DIGITS]}  {_moment(message.created_at)}  {speaker}{shared}")
        if message.role in ACTION_ROLES:
            say(f"    {one_line(message.text, _ACTION_CHARS)}")
            continue
        for line in message.text.splitlines():
            say(f"    {printable(line)}")


@group.command("export")
def export(
    session: Session, form: FormOption = Form.MARKDOWN, to: Target = None, as_json: Json = False
) -> None:
    """Write a conversation as Markdown or as one HTML file.

    Thinking and tool calls are folded. Credentials that today's rules know are blanked; look for other secrets before you pass
    it on.

    Example:

        crystal sessions export 3f9a2c41d0e1 --format html --to retry-budget.html
    """
    if to is not None and to.exists():
        raise UsageError(f"{to} is there already", hint="Name a file that does not exist yet.")
    conversation, messages = _read(session)
    text = _written(form)(conversation, messages)
    if to is not None:
        try:
            write_private(to, text.encode())
        except OSError as error:
            raise UsageError(
                f"{to} cannot be written: {error.strerror}",
                hint="Name a file in a folder that is there, that you may write to, and whose disk has room.",
            ) from error
    if as_json:
        told = {"file": str(to)} if to is not None else {"text": text}
        emit({"id": conversation.id, "format": form.value, "messages": len(messages), **told})
    elif to is not None:
        say(f"Wrote {counted(len(messages), 'message')} to {to}, readable by you alone and not encrypted.")
    else:
        say(text.removesuffix("\n"))


group.command("restore")(restore)


def _read(session: str) -> tuple[ConversationDocument, list[MessageDocument]]:
    """A conversation whole. Raises UsageError, NoSuchEntry."""
    wanted = session.strip()
    if len(wanted) < _ID_CHARS_MIN:
        raise UsageError(
            f"`{one_line(wanted, 40)}` is too short for a conversation's id",
            hint=f"Give at least {_ID_CHARS_MIN} characters of it. `crystal sessions list` shows ids.",
        )
    with memory_client(resolve()) as memory:
        found = memory.conversations(ConversationsRequest(session=wanted, limit=CONVERSATIONS_MAX))
        if not found.conversations:
            raise NoSuchEntry(
                f"no conversation's id begins with {one_line(wanted, 40)}",
                hint="List conversations with `crystal sessions list`.",
            )
        exact = [each for each in found.conversations if wanted in (each.id, each.session)]
        if found.total > 1 and len(exact) != 1:
            raise UsageError(
                f"{found.total} conversations have ids that begin with {one_line(wanted, 40)}",
                hint="Give more of the id. `crystal sessions list --json` shows it whole.",
            )
        one = exact[0] if exact else found.conversations[0]
        return one, _messages(memory, one)


def _messages(memory: MemoryClient, one: ConversationDocument) -> list[MessageDocument]:
    read: list[MessageDocument] = []
    while True:
        page = memory.conversation(ConversationRequest(id=one.id, limit=MESSAGES_MAX, offset=len(read)))
        read += page.messages
        if not page.messages or len(read) >= page.total:
            return read


def _written(form: Form) -> Callable[[ConversationDocument, Sequence[MessageDocument]], str]:
    # Lazy: the rules of redaction are large, and only an export needs them.
    if form is Form.HTML:
        from crystal_node.surfaces.transcripts.page import page_of

        return page_of
    from crystal_node.surfaces.transcripts.markdown import markdown_of

    return markdown_of


def _one_of(
    values: Sequence[ValueCount], given: str, what: str, fits: Callable[[ValueCount, str], bool]
) -> str:
    """The value that a person means. Raises UsageError."""
    found = [each for each in values if given in (each.value, each.name)] or [
        each for each in values if fits(each, given)
    ]
    if len(found) == 1:
        return found[0].value
    named = ", ".join(one_line(each.name, 60) for each in (found or values)[:_VALUES_NAMED]) or "none"
    said = f"several {what}s are" if found else f"no {what} with conversations is"
    raise UsageError(f"{said} called {one_line(given, 60)}", hint=f"Name one of these: {named}.")


def _ends_with(value: ValueCount, given: str) -> bool:
    return value.value.endswith(f"/{given.strip('/')}")


def _is_called(value: ValueCount, given: str) -> bool:
    return value.name.casefold() == given.casefold() or value.value.startswith(given)


def _origin(each: ConversationDocument) -> str:
    parts = [
        one_line(each.project, 60),
        " on ".join(part for part in (one_line(each.tool, 40), one_line(each.device_name, 60)) if part),
        counted(each.texts, "text"),
    ]
    return " · ".join(part for part in parts if part)


def _grew_last(copies: SessionCopies, each: ConversationDocument) -> dict[str, Any] | None:
    """Where the raw copy of a conversation's session grew last, and how many forks of it there are; None if there is none."""
    if each.tool not in TOOLS or not each.session:
        return None
    branches = copies.branches(each.tool, each.session)
    if not branches:
        return None
    tip = branches[0].tip
    return {
        "device": tip.device,
        "updated_at": iso(tip.updated_at),
        "bytes": tip.main.bytes,
        "forks": len(branches) - 1,
    }


def _copy_words(copy: dict[str, Any] | None, names: dict[str, str]) -> str:
    if copy is None:
        return ""
    device = next((name for value, name in names.items() if value and copy["device"].startswith(value)), "")
    forks = f", {counted(copy['forks'], 'fork')}" if copy["forks"] else ""
    return f" · copied, grew last on {one_line(device or copy['device'][:8], 60)}{forks}"


def _moment(at: str) -> str:
    return clock_time(int(datetime.fromisoformat(at).timestamp() * 1000)) if at else "undated"

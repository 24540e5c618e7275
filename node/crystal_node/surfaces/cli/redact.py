"""``crystal redact``: apply the present redaction rules to what is stored."""

from typing import Annotated

import typer

from crystal_mirror.membership.status import device_name
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import resolve
from crystal_node.base.wording import counted, one_line
from crystal_node.capture.stored_redaction import MEMORIES, SOURCES, RedactionSurvey, replace, survey
from crystal_node.device.device import Device, opened
from crystal_node.device.redaction_version import RULES_VERSION, UPGRADE_FIRST, note_redacted
from crystal_node.surfaces.cli.console.options import Json, Yes
from crystal_node.surfaces.cli.console.output import emit, note, say
from crystal_node.surfaces.cli.console.progress import progress_shown
from crystal_node.surfaces.cli.console.prompts import ask
from crystal_node.surfaces.cli.console.terminal import is_terminal

Again = Annotated[
    bool, typer.Option("--again", help="Check everything that is stored; ask before changing it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")]
_SHOWN = {MEMORIES: "memories", SOURCES: "documents of sources"}


def run(again: Again = False, dry_run: DryRun = False, yes: Yes = False, as_json: Json = False) -> None:
    """Blank stored credentials that newer rules find.

    What is recorded is redacted at once, by the rules of that day. This applies today's rules to stored conversations and
    thoughts, to memories, and to sources. It counts what it finds, asks, and replaces it on every device: time, place and
    device stay, what stood there before is forgotten for good. It may be stopped at any time, and run again. Headings in
    sources are replaced by the source's device, when it scans next. Files, backups and the names of conversations are not
    touched. A credential that was stored in clear should also be changed where it is used.

    Devices with an older Crystal stop at this change until they are upgraded: upgrade them first.

    Example:

        crystal redact --again --dry-run
        crystal redact --again
    """
    if not again:
        raise UsageError("redact needs --again", hint="Run `crystal redact --again`.")
    with opened(resolve()) as device:
        with progress_shown("texts", quiet=as_json) as progress:
            found = survey(device, progress)
        changed = False
        if not as_json:
            _tell(device, found)
        others = len(device.member.log.active()) > 1
        if found.texts and not dry_run:
            if others and not as_json:
                note(f"\n{UPGRADE_FIRST}")
            if not yes and not (
                is_terminal() and not as_json and ask("\nReplace them on every device, for good? [yes/no] ")
            ):
                raise UsageError("nothing was changed", hint="Answer yes, or add --yes.")
            with progress_shown("texts", quiet=as_json) as progress:
                replace(device, found, progress)
            changed = True
        elif not found.texts:
            note_redacted(device.journal)
        if as_json:
            emit(_document(device, found, changed=changed, dry_run=dry_run))
        elif changed:
            say(f"Replaced {counted(found.texts, 'text')} here. Other devices follow with their next sync.")
            note(
                "Not changed: the transcripts that the AI tools keep themselves, names of conversations, files, and earlier "
                "backups. Headings in sources are replaced when their device scans them next."
            )
            note("Change these credentials: others may have read them.")
            if others:
                note(UPGRADE_FIRST)


def _tell(device: Device, found: RedactionSurvey) -> None:
    say(f"read         {counted(found.read, 'text')}, by version {RULES_VERSION} of the rules")
    if not found.texts:
        say("found        no credentials")
        return
    say(f"found        {counted(found.kinds.total(), 'credential')} in {counted(found.found, 'text')}")
    for title, counts in (
        ("by rule", dict(found.kinds.most_common())),
        ("by device", _devices(device, found)),
        ("by tool", _tools(found)),
    ):
        parts = (f"{one_line(name, 60)} {count:,}" for name, count in counts.items())
        say(f"{title:<13}{', '.join(parts)}")


def _devices(device: Device, found: RedactionSurvey) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each, count in found.devices.most_common():
        name = device_name(device.member, each) or each.hex()[:8]
        counts[name] = counts.get(name, 0) + count
    return counts


def _tools(found: RedactionSurvey) -> dict[str, int]:
    return {_SHOWN.get(name, name): count for name, count in found.tools.most_common()}


def _document(device: Device, found: RedactionSurvey, *, changed: bool, dry_run: bool) -> dict[str, object]:
    return {
        "rules": RULES_VERSION,
        "read": found.read,
        "found": found.found,
        "credentials": dict(found.kinds.most_common()),
        "devices": _devices(device, found),
        "tools": _tools(found),
        "texts": found.texts,
        "replaced": changed,
        "dry_run": dry_run,
    }

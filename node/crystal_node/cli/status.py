"""``crystal status``: how this device stands, without asking anybody."""

from typing import TYPE_CHECKING

from crystal_node.cli.options import Debug, Json
from crystal_node.cli.output import emit, say

if TYPE_CHECKING:
    from crystal_node.device import Device
    from crystal_node.health.standing import Standing


def run(as_json: Json = False, debug: Debug = False) -> None:
    """Show this device's standing: role, what waits to be sent, how far the mirror was applied, what was noticed.

    Example:

        crystal status --json
    """
    from crystal_node.device import opened
    from crystal_node.health.standing import standing
    from crystal_node.settings import resolve

    with opened(resolve()) as device:
        found = standing(device)
        if as_json:
            emit(_document(device, found))
        else:
            _print(device, found)


def _document(device: "Device", found: "Standing") -> dict[str, object]:
    from crystal_mirror.news import news
    from crystal_node.files.standing import document, files_standing
    from crystal_node.health.concerns import concerns
    from crystal_node.members.newsdesk import line_of
    from crystal_node.noticetexts import notice_text
    from crystal_node.replication.briefly import replication_document
    from crystal_node.wording import iso

    member, settings = found.member, device.settings
    waiting = member.pending + member.stored
    oldest = None if found.pending_seconds is None else round(found.pending_seconds, 1)
    return {
        "role": "core" if member.is_core else "node",
        "vault": member.vault.hex(),
        "device": member.device.hex(),
        "name": device.name,
        "home": str(settings.home.root),
        "relay": settings.relay_url,
        "agent": settings.agent_id,
        "epoch": member.epoch,
        "outbox": {
            "pending": waiting,
            "unsent": member.pending,
            "stored": member.stored,
            "oldest_seconds": oldest,
        },
        "mirror": {
            "epoch": member.position[0],
            "seq": member.position[1],
            "digest": member.digest.hex(),
            "unsent": member.unsent,
        },
        "quarantined": member.quarantined,
        "void": member.void_slots,
        "memory": {
            "texts": found.counts.texts,
            "places": found.counts.places,
            "memories": found.counts.memories,
            "forgotten": found.counts.forgotten,
            "provisional": found.counts.provisional,
            "model": found.model or None,
        },
        "snapshot": replication_document(found.replication),
        "private": {
            "on": found.privacy.on,
            "since": None if found.privacy.since is None else iso(found.privacy.since),
        },
        "files": document(files_standing(device)),
        "watching": found.watching,
        "keys": device.keys.kind.value,
        "holds_root": found.holds_root,
        "generation": {"number": found.generation, "begun_at": iso(found.generation_at)},
        "concerns": [{"name": each.name.value, "text": each.text} for each in concerns(device)],
        "news": [
            {
                "event": piece.kind.value,
                "device": piece.device.hex() if piece.device else None,
                "name": piece.name,
                "by": piece.by.hex() if piece.by else None,
                "by_name": piece.by_name,
                "with_root": piece.by_root,
                "at": iso(piece.at),
                "text": line_of(piece, member.device),
            }
            for piece in news(device.member)
        ],
        "notices": [
            {"name": name, "detail": detail, "text": notice_text(name)}
            for name, detail in member.notices.items()
        ],
        "noticed": dict(member.raised),
    }


def _print(device: "Device", found: "Standing") -> None:
    from crystal_node.clock import now_ms
    from crystal_node.health.concerns import concerns
    from crystal_node.members.newsdesk import lines_of, mark_all_shown
    from crystal_node.noticetexts import notice_text
    from crystal_node.replication.briefly import replication_lines
    from crystal_node.wording import ago, counted, one_line

    settings, member, counts = device.settings, found.member, found.counts
    role = "Core" if member.is_core else "Node"
    say(
        f"{one_line(device.name, 60)} is a {role} of vault {member.vault.hex()[:8]} (device {member.device.hex()[:8]})."
    )
    say(f"memory   {counted(counts.texts, 'text')}, {counted(counts.memories, 'memory', 'memories')}")
    say(
        f"mirror   epoch {member.position[0]}, {member.position[1]:,} applied, digest {member.digest.hex()[:16]}"
    )
    for line in replication_lines(device.member, found.replication):
        say(line)
    waiting = member.pending + member.stored
    if waiting:
        oldest = (
            "" if found.pending_seconds is None else f", the oldest for {ago(found.pending_seconds)} at most"
        )
        say(f"outbox   {counted(waiting, 'operation')} not durable yet ({member.pending} not sent){oldest}")
    else:
        say("outbox   empty: everything recorded here is durable")
    _print_files(device)
    say(f"relay    {settings.relay_url or 'none'}")
    age = f", {ago(max(now_ms() - found.generation_at, 0) / 1000)} old" if found.generation_at else ""
    say(f"keys     generation {found.generation}{age}")
    say(f"sync     {'a watcher is running' if found.watching else 'no watcher is running'}")
    if found.privacy.on:
        say("private  ON: nothing is recorded (`crystal private off` ends it)")
    if member.quarantined:
        say(
            f"held     {counted(member.quarantined, 'thing')} from the relay could not be taken; kept and counted"
        )
    for name, detail in member.notices.items():
        say(f"! {notice_text(name)} ({detail})")
    for concern in concerns(device):
        say(f"! {concern.text}")
    for line in lines_of(device.member):
        say(f"* {line}")
    mark_all_shown(device.member)


def _print_files(device: "Device") -> None:
    from crystal_node.files.standing import files_standing
    from crystal_node.wording import counted

    found = files_standing(device)
    last = found.last
    odd = [
        text
        for count, text in (
            (found.offered, f"{found.offered:,} waiting for the Core"),
            (len(found.conflicts), counted(len(found.conflicts), "conflict copy", "conflict copies")),
            (last.refused_count, f"{last.refused_count:,} not synced"),
            (len(last.lacking), f"{len(last.lacking):,} not complete on the relay"),
            (found.aside, f"{found.aside:,} left out here"),
            (found.trash_files, f"{found.trash_files:,} in the trash"),
        )
        if count
    ]
    say(f"files    {', '.join([f'{found.synced:,} of {found.tree:,} synced', *odd])}")
    if last.halted:
        say(f"! Files are not synced: {last.halted}. `crystal files status` says what to do.")
    if found.withheld:
        say(f"! {counted(len(found.withheld), 'deletion')} of files wait for `crystal files confirm`.")

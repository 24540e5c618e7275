"""``crystal status --json``: how a device stands, for programs. Fields are added, and none that is here changes its meaning."""

from typing import cast

from crystal_mirror.news import news
from crystal_node.agent.health.status import Standing
from crystal_node.base.notice_texts import notice_text
from crystal_node.base.wording import iso
from crystal_node.device.activity import Moment
from crystal_node.device.device import Device
from crystal_node.sync.files.standing import files_document as files_document
from crystal_node.sync.members.listing import MemberRow
from crystal_node.sync.members.newsdesk import line_of
from crystal_node.sync.replication.briefly import replication_document


def status_document(device: Device, found: Standing) -> dict[str, object]:
    """All of it."""
    member, settings = found.member, device.settings
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
            "pending": found.channels.conversations.waiting,
            "unsent": member.pending,
            "stored": member.stored,
            "oldest_seconds": _rounded(found.pending_seconds),
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
        "capture": {"on": settings.capture.on, "without": sorted(settings.capture.without)},
        "private": {
            "on": found.privacy.on,
            "since": None if found.privacy.since is None else iso(found.privacy.since),
        },
        "files": files_document(found.files),
        "watching": found.watching,
        "keys": device.keys.kind.value,
        "holds_root": found.holds_root,
        "generation": {"number": found.generation, "begun_at": iso(found.generation_at)},
        "devices": [_device(row) for row in found.devices],
        "channels": _channels(found),
        "last": {moment.value: iso(found.moments.get(moment, 0)) for moment in Moment},
        "sync": _sync(found),
        "background": _background(found),
        "stuck": [
            {"name": each.name.value, "text": each.text, "remedy": each.remedy, "since": iso(each.since)}
            for each in found.stuck
        ],
        "concerns": [{"name": each.name.value, "text": each.text} for each in found.concerns],
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


def without_ages(document: dict[str, object]) -> object:
    """The document without what changes by the mere passing of time: two that differ have something to tell."""
    return _plain(document)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return {name: _plain(each) for name, each in named.items() if name not in ("oldest_seconds", "text")}
    return [_plain(each) for each in cast("list[object]", value)] if isinstance(value, list) else value


def _device(row: MemberRow) -> dict[str, object]:
    entry = row.entry
    return {
        "id": entry.info.device.hex(),
        "name": entry.details.name if entry.details else None,
        "role": "core" if entry.leads else "node",
        "this": entry.is_this,
        "last_seen": None if entry.is_this else iso(row.seen_at),
        "behind": row.behind,
        "pending": row.pending,
    }


def _channels(found: Standing) -> dict[str, object]:
    through = found.channels
    talk, commands = through.conversations, through.commands
    return {
        "conversations": {
            "unsent": talk.unsent,
            "stored": talk.stored,
            "oldest_seconds": _rounded(talk.oldest_seconds),
        },
        "mirror": {
            "behind": through.mirror.behind,
            "ahead": through.mirror.ahead,
            "oldest_seconds": _rounded(through.mirror.oldest_seconds),
        },
        "files": {
            "waiting": through.files.waiting,
            "oldest_seconds": _rounded(through.files.oldest_seconds),
        },
        "commands": None
        if commands is None
        else {
            "asked": commands.asked,
            "running": commands.running,
            "waiting": commands.waiting,
            "oldest_seconds": _rounded(commands.oldest_seconds),
        },
    }


def _sync(found: Standing) -> dict[str, object]:
    trouble = found.trouble
    return {
        "ok": trouble is None,
        "failing_since": iso(trouble.since) if trouble else None,
        "failure": trouble.message if trouble else None,
        "exit_code": trouble.exit_code if trouble else None,
    }


def _background(found: Standing) -> dict[str, object]:
    work = found.background
    return {
        "running": work.runner is not None,
        "pid": work.runner.pid if work.runner else None,
        "what": (work.runner.purpose or None) if work.runner else None,
        "failing": [
            {
                "job": job.name,
                "why": job.text,
                "failures": job.failures,
                "at": iso(job.at),
                "broken": job.broken,
            }
            for job in work.failing
        ],
        "paused": list(work.paused),
        "since": iso(work.started),
        "put_off": work.put_off or None,
        "put_off_jobs": list(work.waiting),
        "fault": work.fault or None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)

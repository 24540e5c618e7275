"""What needs a person, as sentences that may stand on a screen: of concerns, of what waits for an answer, and of the doctor's
failures. Nothing of their own texts is taken over.
"""

from crystal_node.agent.health.check import Check, State, guarded
from crystal_node.agent.health.checks.device import quick_checks
from crystal_node.agent.health.concerns import ConcernName, concerns
from crystal_node.agent.health.findings import StuckName
from crystal_node.agent.health.status import standing
from crystal_node.base.settings import Settings
from crystal_node.device.device import Device

LINES_MAX = 4

_CONCERNS = {
    ConcernName.REVOKED: "This machine was put out of your vault.",
    ConcernName.REFUSED: "The relay refuses this machine.",
    ConcernName.FROZEN: "No machine is the Core: nothing reaches the others.",
    ConcernName.REVOCATION_UNFINISHED: "A device was not put out completely.",
    ConcernName.ROOT_REPLACED: "The vault's root that is kept here was replaced.",
    ConcernName.OTHER_MODEL: "The memory was embedded by another version's model.",
    ConcernName.KIT: "You have no recovery kit that was checked and works.",
    ConcernName.NEVER_ARRIVED: "A device was added, and was never heard of since.",
}
"""Those that no round of sync settles by itself."""
_STUCK = {
    StuckName.STAGING: "Conversations of a new agent wait for your decision.",
    StuckName.FILES: "Files are not synced until you decide.",
    StuckName.KEYS: "This machine was not given the newest keys.",
    StuckName.DISK: "A disk is full, or takes no writes.",
}
_CHECKS = {
    "permissions": "Others than you can use what is in the memory home.",
    "disk": "The disk is nearly full, or takes no writes.",
    "databases": "A database is damaged.",
    "jobs": "Something that runs in the background fell over.",
}
_OTHER_CHECK = "The doctor found something that is not well."
_KNOWN = frozenset({"device log", "access", "generation", "recovery kit"})
"""Checks of what concerns and stuck things tell already."""


def look_around(settings: Settings) -> list[Check]:
    """The doctor's checks that need no key and no network. They read databases: call it in a thread."""
    from crystal_node.agent.health.checks import background
    from crystal_node.agent.health.checks.databases import databases
    from crystal_node.agent.health.checks.home import permissions, room

    checks = guarded("permissions", lambda: permissions(settings))
    checks += guarded("disk", lambda: room(settings))
    checks += guarded("databases", lambda: databases(settings, deep=False))
    return checks + guarded("jobs", lambda: background.jobs(settings))


def needs(device: Device, looked: list[Check]) -> list[str]:
    """Each thing once, what matters most first. ``looked`` is what ``look_around`` found."""
    found = [_CONCERNS[each.name] for each in concerns(device) if each.name in _CONCERNS]
    found += [_STUCK[each.name] for each in standing(device).stuck if each.name in _STUCK]
    checks = looked + guarded("device", lambda: quick_checks(device.settings, device))
    found += [
        _CHECKS.get(check.name, _OTHER_CHECK)
        for check in checks
        if check.state is State.FAILED and check.name not in _KNOWN
    ]
    return list(dict.fromkeys(found))


def body(found: list[str]) -> str:
    """The notice's text."""
    shown = found[:LINES_MAX]
    if len(found) > LINES_MAX:
        shown.append(f"And {len(found) - LINES_MAX} more.")
    return "\n".join([*shown, "`crystal status` and `crystal doctor` say what to do."])

"""Policy of commands: a device may run every action here that this machine's owner did not deny.

``commands_denied`` in config.json lists rules ``DEVICE:ACTION``, where either may be ``*`` and a device is 8 or more digits of
its id. The machine that is asked checks them when the request is about to run.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from crystal_mirror.commands.messages import Action
from crystal_node.base.errors import UsageError
from crystal_node.base.settings import Settings
from crystal_node.base.settings.options import BY_NAME

ANY = "*"


def denial(denied: Sequence[str], sender: bytes, action: Action) -> str:
    """Why the device may not run the action here; "" if it may."""
    for rule in denied:
        device, _, name = rule.partition(":")
        if (device == ANY or sender.hex().startswith(device)) and name in (ANY, action.value):
            return f"{action.value} was denied to this device there (commands_denied: {rule})"
    return ""


def deny(settings: Settings, device: str, action: str) -> tuple[str, ...]:
    """Adds a rule to config.json. Returns all of them. ``device``: an id's digits, or ``*``."""
    rule = f"{device}:{checked_action(action)}"
    return _save(settings, tuple(dict.fromkeys((*settings.service.commands_denied, rule))))


def allow(settings: Settings, device: str, action: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Removes the rules for that device and action. Returns those left, and of these the ones that still deny it.

    ``*`` removes the rules of every device or action.
    """
    name = checked_action(action)

    def goes(rule: str) -> bool:
        of, _, what = rule.partition(":")
        same = device == ANY or of == device or (of != ANY and device.startswith(of))
        return same and name in (ANY, what)

    left = _save(settings, tuple(rule for rule in settings.service.commands_denied if not goes(rule)))
    still = tuple(rule for rule in left if _touches(rule, device, name))
    return left, still


def checked_action(name: str) -> str:
    """Raises Usage."""
    if name != ANY and name not in set(Action):
        raise UsageError(f"there is no action {name[:40]!r}", hint=f"There are: {', '.join(Action)}, or *.")
    return name


def _touches(rule: str, device: str, action: str) -> bool:
    of, _, what = rule.partition(":")
    return (of == ANY or device == ANY or device.startswith(of)) and (what == ANY or action in (ANY, what))


def _save(settings: Settings, rules: tuple[str, ...]) -> tuple[str, ...]:
    """Raises BadConfig if there are too many rules."""
    checked = BY_NAME["commands_denied"].check(",".join(rules), "`crystal commands`")
    settings.save(replace(settings.config, commands_denied=checked or None))
    return rules

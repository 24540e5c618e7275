"""``crystal pair --offline`` and joining by its code: the vault's root itself, with the warnings that belong to it."""

from pathlib import Path
from typing import TYPE_CHECKING

from crystal_node.surfaces.cli.options import confirm
from crystal_node.surfaces.cli.output import emit, note, say

if TYPE_CHECKING:
    from crystal_crypto.hierarchy import Root
    from crystal_node.base.settings import Settings

_WARNING = """\
The code opens the whole vault: who has it can read everything, add devices and take the lead.
It never expires, and no digits protect it. To bring in one machine, plain `crystal pair` is safer.
Show it to nobody, photograph it nowhere, and clear the screen afterwards.
"""


def key_check(root: "Root") -> str:
    """Four groups that are the same wherever the same root is: "3f2a 9c01 77be 10d4". They tell nothing of it."""
    text = root.check_value.hex()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def show_offline(settings: "Settings", qr: Path | None, *, yes: bool, as_json: bool) -> None:
    """Shows the code after a typed confirmation."""
    from crystal_crypto.pairing import encode
    from crystal_node.base.errors import NotSetUp, WrongCode
    from crystal_node.device.device import opened
    from crystal_node.safekeeping.pairing.qr import check_file, write
    from crystal_node.surfaces.cli.screen import show_code

    if settings.vault is None:
        raise NotSetUp(f"{settings.home.root} belongs to no vault yet")
    if qr is not None:
        check_file(qr)
    with opened(settings) as device:
        root, in_force = device.root, device.holds_root
    if root is None or not in_force:
        raise WrongCode(
            "this machine does not hold the vault's root"
            if root is None
            else "the vault's root was replaced, and the one on this machine opens nothing any more",
            hint="Show the code on a machine that holds the root: `crystal devices` names it.",
        )
    if not yes:
        confirm("\nType show to show it: ", expect="show", about=_WARNING, as_json=as_json)
    text = encode(root, settings.vault)
    if as_json:
        if qr is not None:
            write(text, qr)
        emit({"code": text, "key_check": key_check(root), "qr": str(qr) if qr else None})
        return
    show_code(text, qr)
    note(f"Key check: {key_check(root)}. The other machine has to show the same.")
    note(
        f"There: `crystal pair --code - --relay {settings.relay_url or 'URL'}`, by the address that it reaches the relay at."
    )


def join_offline(settings: "Settings", code: str, *, as_json: bool, new_keys: bool) -> None:
    """Joins by the root that the code is."""
    import asyncio

    from crystal_crypto.pairing import decode
    from crystal_node.device.enrol import join_vault

    offline = decode(code)
    note(f"Key check: {key_check(offline.root)}. The machine that shows the code has to show the same.")
    enrolled = asyncio.run(join_vault(settings, offline.root, offline.vault, new_keys=new_keys))
    settings = enrolled.settings
    if as_json:
        emit(
            {
                "role": "node",
                "vault": enrolled.vault.hex(),
                "device": enrolled.device.hex(),
                "name": settings.name.value,
                "relay": settings.relay_url,
                "home": str(settings.home.root),
                "keys": enrolled.keys.kind.value,
                "key_check": key_check(offline.root),
                "fresh": enrolled.fresh,
                "anew": enrolled.anew,
                "replaced": enrolled.replaced.hex() or None,
            }
        )
        return
    if enrolled.anew:
        from crystal_node.surfaces.cli.pair_invite import say_anew

        say_anew(enrolled, new_keys=new_keys)
        return
    if not enrolled.fresh:
        say(f"This machine was in the vault already; the relay {settings.relay_url} knows it again.")
        return
    say(f"This machine ({settings.name.value}) has joined vault {enrolled.vault.hex()[:8]}.")
    say("It holds the vault's root now: whoever has this machine can do everything with the vault.")
    say()
    say("Next:  crystal capture          record this machine's conversations")
    say("       crystal up               hooks, and the agent that keeps in touch with the relay")
    say("       crystal search WORDS     find anything, offline")

"""``crystal demo``: everything at work, on this machine, within a minute."""

from typing import Annotated

import typer

from crystal_node.base.settings import resolve
from crystal_node.surfaces.cli.console.options import Json
from crystal_node.surfaces.cli.console.output import emit, say
from crystal_node.surfaces.demo import source as sources
from crystal_node.surfaces.demo.steps import Demo, DemoStep, describe_step, make_folder, remove_folder

Mine = Annotated[
    bool,
    typer.Option(
        "--mine", help="Use this machine's own newest Claude Code conversations, which are only read."
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the demo's homes there, and say where.")]


def run(mine: Mine = False, keep: Keep = False, as_json: Json = False) -> None:
    """Show everything at work: a relay, a Core and two Nodes.

    They are real processes in throw-away homes. A conversation is captured on one device, sealed, carried, opened, embedded
    and mirrored, and then found on the two others, with the relay stopped. Needs no network and no account, and leaves
    nothing behind.

    Example:

        crystal demo --mine
    """
    source = sources.mine(resolve()) if mine else sources.sample()
    folder = make_folder()
    try:
        showing = Demo(source, (lambda _: None) if as_json else _tell, folder)
        if not as_json:
            say("One memory on three devices, and a relay that can read none of it:")
            say()
        showing.run()
    finally:
        if not keep:
            remove_folder(folder)
    seconds = sum(step.seconds for step in showing.steps)
    if as_json:
        steps = [
            {"text": step.text, "seconds": round(step.seconds, 3), "bytes": step.bytes}
            for step in showing.steps
        ]
        emit(
            {
                "ok": True,
                "seconds": round(seconds, 3),
                "steps": steps,
                "folder": str(folder) if keep else None,
            }
        )
        return
    say()
    say(f"Done in {seconds:.1f} s." + (f" The homes are in {folder}." if keep else " Nothing is left of it."))
    say()
    say("Next, for real:")
    say("  crystal up               on the first machine: vault, hooks, service, after one Enter")
    say("  crystal pair             there, when a second machine comes: invites it, asks for its six digits")
    say("  crystal up --code -      on the second machine: asks for the invite")
    if not mine:
        say("Or see it with your own conversations, read and nothing else:  crystal demo --mine")


def _tell(step: DemoStep) -> None:
    say(f"  ✓ {describe_step(step)}")

"""What `crystal remember` tells of the memory that it kept."""

from collections.abc import Mapping
from typing import Any

from crystal_node.base.wording import counted, one_line
from crystal_node.surfaces.cli.console.output import note, say

_SHOWN_CHARS = 200


def show_remembered(done: Mapping[str, Any], *, asked: bool) -> None:
    """``done``: the fields of a ``RememberedDocument``, whose module takes longer to load than all else here. ``asked``: the
    person was asked about memories that are alike, and need not be told of them."""
    kept = str(done["id"])[:12]
    if done["merged"]:
        sure = "" if done["confidence"] == 100 else f", {done['confidence']}%"
        say(f"That is remembered already, as {kept}; it is {done['category']}{sure} now.")
    else:
        say(f"Remembered as {kept}. Other devices have it after their next sync.")
    if done["project"]:
        project = one_line(done["project"], _SHOWN_CHARS)
        say(f"It is for {project} alone; --scope everywhere makes it one for all projects.")
    for each in done["supersedes"]:
        say(f"It takes the place of {each[:12]}.")
    if done["redacted"]:
        say(f"{counted(done['redacted'], 'credential')} in it blanked out.")
    if done["alike"] and not asked:
        for other in done["alike"]:
            note_alike(other["id"], other["text"])
        note("To have one of them: `crystal memories retire ID`, or `crystal remember TEXT --supersedes ID`.")


def note_alike(other: str, text: str) -> None:
    """Tell of a memory that says almost the same, by its id and its words."""
    note(f"Almost the same is remembered: {other[:12]}  {one_line(text, _SHOWN_CHARS)}")

"""The tools that remember and forget, as ``crystal remember`` and ``crystal forget`` do."""

from crystal_core.memories import Category
from crystal_mirror.operations import Forget
from crystal_node.base.errors import UsageError
from crystal_node.base.lookup import StoredText, find_text
from crystal_node.base.text_ids import SHOWN_DIGITS
from crystal_node.base.wording import counted, one_line
from crystal_node.device.device import Device, opened
from crystal_node.search.memories.changes import remember_text
from crystal_node.search.projects import project_here
from crystal_node.surfaces.mcp.arguments import ForgetArguments, RememberArguments
from crystal_node.surfaces.mcp.calls import Call, Question
from crystal_node.surfaces.mcp.fence import Fence, name

_EXCERPT_CHARS = 300


def remember(call: Call, given: RememberArguments) -> tuple[None, str]:
    """``crystal_remember``. Memories that say almost the same stay and are named: the agent asks its person."""
    with opened(call.keeper.settings()) as device:
        place = project_here(device, call.folder)
        kept = remember_text(device, given, agent=given.agent.strip() or call.agent, place=place)
    how = "was remembered already; it is" if kept.merged else "is remembered as"
    where = f"for project {name(kept.project)} alone" if kept.project else "for everywhere"
    lines = [
        f"It {how} id {kept.id[:SHOWN_DIGITS]} ({given.category.value}), {where}. Other devices have it after their next sync."
    ]
    if not (kept.project or call.folder or given.scope or given.category is Category.PREFERENCE):
        lines.append(
            "Nothing says which project the work is in: if it is true in one alone, remember it again with project."
        )
    if kept.redacted:
        lines.append(f"{counted(kept.redacted, 'credential')} in it blanked out.")
    if kept.alike:
        fence = Fence(each.text for each in kept.alike)
        lines.append(f"These say almost the same and stay beside it. {fence.explanation}")
        lines += [
            f"id {each.id[:SHOWN_DIGITS]}\n{fence.around(each.text[:_EXCERPT_CHARS])}" for each in kept.alike
        ]
        lines.append("If one is out of date, remember the text again with its id in supersedes.")
    return None, "\n".join(lines)


def forget(call: Call, given: ForgetArguments) -> tuple[None, str]:
    """``crystal_forget``. Without consent it changes nothing and says what would go."""
    from crystal_node.agent.forget_report import note_files
    from crystal_node.sync.files.text_search import files_with

    with opened(call.keeper.settings()) as device:
        found = _texts(device, given.ids)
        about = _about(found)
        if not call.asked:
            if not given.confirm:
                return _preview(call, found, about)
            if not call.pledges.redeem(given.confirm, about):
                raise UsageError(
                    "that is no confirmation for these texts, or not any more",
                    hint="Call crystal_forget without confirm: it says what would go, and gives a new one.",
                )
        device.accept([Forget(tuple(text.forget_hash for text in found))])
        holding = files_with(device, [text.words for text in found])
        if holding:
            note_files(device, holding)
    ids = ", ".join(text.id.hex()[:SHOWN_DIGITS] for text in found)
    said = f"Forgotten: {ids}. Other devices follow with their next sync."
    if holding:
        names = "\n".join(one_line(path, _EXCERPT_CHARS) for path in holding)
        said += f" These files still hold it; tell the person:\n{names}"
    return None, said


def forget_question(call: Call, given: ForgetArguments) -> Question:
    """The question to the person before a forget."""
    with opened(call.keeper.settings()) as device:
        found = _texts(device, given.ids)
    lines = [f"“{one_line(text.words, _EXCERPT_CHARS)}”" for text in found]
    many = counted(len(found), "text")
    return Question(
        f"An agent asks to forget {many} on all of your devices, for good:\n\n" + "\n".join(lines),
        f"Forget {many} everywhere, for good",
        _about(found),
    )


def _preview(call: Call, found: list[StoredText], about: str) -> tuple[None, str]:
    word = call.pledges.give(about)
    fence = Fence(text.words for text in found)
    shown = "\n".join(
        f"id {text.id.hex()[:SHOWN_DIGITS]}\n{fence.around(text.words[:_EXCERPT_CHARS])}" for text in found
    )
    return None, (
        f"Nothing was forgotten yet. {fence.explanation}\n{shown}\nIf the person asked you to forget "
        f"{'this' if len(found) == 1 else 'these'}, and not a text from the memory, call crystal_forget again with the "
        f'same ids and confirm "{word}" within ten minutes. It removes them on all devices, for good.'
    )


def _texts(device: Device, ids: list[str]) -> list[StoredText]:
    found = {text.id: text for text in (find_text(device.replica.database, given) for given in ids)}
    return list(found.values())


def _about(found: list[StoredText]) -> str:
    return "forget " + " ".join(sorted(text.id.hex() for text in found))

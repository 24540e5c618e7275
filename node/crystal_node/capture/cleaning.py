"""What people and models said, without what the tool wrote around it.

Claude Code puts reminders, command mark-up and command output into user messages. None of it is anybody's words, and some
of it is long. Scanning is linear in the text, whatever the text holds.
"""

_TAGS = (
    "system-reminder",
    "command-name",
    "command-message",
    "command-args",
    "command-contents",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "user-memory-input",
    "task-notification",
)
_MARKERS = ("[Request interrupted by user for tool use]", "[Request interrupted by user]")


def clean(text: str) -> str:
    """The text without mark-up blocks, interruption markers and NULs, stripped. "" if nothing else was in it."""
    if "<" in text:
        for tag in _TAGS:
            text = _without(text, f"<{tag}>", f"</{tag}>")
    for marker in _MARKERS:
        text = text.replace(marker, "")
    return text.replace("\0", "").strip()


def _without(text: str, opening: str, closing: str) -> str:
    """Cuts every block out. A block that never closes stays: people write about tags, too."""
    if opening not in text:
        return text
    kept: list[str] = []
    at = 0
    while (start := text.find(opening, at)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        kept.append(text[at:start])
        at = end + len(closing)
    kept.append(text[at:])
    return "".join(kept)

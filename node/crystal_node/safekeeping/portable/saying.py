"""What was taken in, in words."""

from collections.abc import Callable

from crystal_node.base.wording import counted
from crystal_node.safekeeping.portable.taking import ImportCounts


def say_counts(taken: ImportCounts, *, dry_run: bool, say: Callable[[str], None]) -> None:
    """A few lines on what came in, or would."""
    say("Would come in:" if dry_run else "Came in; other devices have it after the next sync:")
    say(
        f"  pieces of conversations: {taken.new:,} new, {taken.known:,} known, {taken.forgotten:,} forgotten here"
    )
    for agent, count in sorted(taken.by_agent.items()):
        say(f"    {agent}: {count:,}")
    say(f"  memories: {taken.memories:,} new, {taken.memories_known:,} known")
    if taken.too_long:
        say(f"  {counted(taken.too_long, 'memory', 'memories')} over the limit of one, left out")
    if taken.redacted:
        say(f"  {counted(taken.redacted, 'credential')} blanked out")

"""Which version of the redaction rules this device's memory was redacted with, and whether a person was told of newer ones.

The rules themselves are in the wing `capture`. A new home uses the present rules from its start; an older one has texts
recorded under earlier rules, until `crystal redact --again` has gone through them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from crystal_node.device.journal_values import peek

if TYPE_CHECKING:
    from crystal_mirror.ports import Journal

RULES_VERSION = 1
"""Incremented with each change of what is blanked; `tests/node/capture/test_rules_version.py` checks that."""
META_RULES = "node.redaction-rules"
"""Journal value: version of the rules by which all that is stored here was redacted."""
META_TOLD = "node.redaction-rules-told"
"""Journal value: version of the rules that a person was told of."""
UPGRADE_FIRST = (
    "Devices with an older Crystal stop at this change until they are upgraded: upgrade them first."
)
HINT = (
    "Newer rules find more credentials. To check what was recorded before: `crystal redact --again`. "
    f"{UPGRADE_FIRST}"
)


def note_redacted(journal: "Journal") -> None:
    """All texts here were redacted by the present rules."""
    with journal.transaction() as transaction:
        transaction.meta_set(META_RULES, b"%d" % RULES_VERSION)


def are_older(state_database: Path) -> bool:
    """Whether texts here may be older than the rules, and nobody was told yet. Does not open the journal for writing."""
    return (
        state_database.exists()
        and max(_number(peek(state_database, META_RULES)), _number(peek(state_database, META_TOLD)))
        < RULES_VERSION
    )


def note_told(journal: "Journal") -> None:
    """A person was told of the present rules."""
    with journal.transaction() as transaction:
        transaction.meta_set(META_TOLD, b"%d" % RULES_VERSION)


def _number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0

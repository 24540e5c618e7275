"""Whether the state shows what an operation does, when the entry that carried it is not kept here: the log was read from a
snapshot on, and tells only that an operation of that name was done.

It is tried out, and taken back. What would add nothing has its effect. What would bring back a text that was forgotten was done
and undone since, or is no better than that: tombstones win. A file's operation is let go of in any case: the file itself is
compared with the tree in every round. A forget is never: that it adds nothing does not say that it was done.
"""

from crystal_mirror.member import Member
from crystal_mirror.operations import DropFile, Forget, PutFile, decode_operation
from crystal_mirror.ports import OutboxRow, ReplicaView
from crystal_mirror.snapshot_base import read_base

SUPPRESSED_TABLE = "suppressed"
"""The forgotten texts' name in the state's digest."""


class _TriedOut(Exception):
    """Takes a trial back."""


def has_effect(member: Member, row: OutboxRow) -> bool:
    """Whether nothing has to be done any more for this operation, whose name is done. False without a snapshot under the state:
    then the log is kept from its beginning, and carries what was done."""
    if read_base(member.replica) is None:
        return False
    operation = decode_operation(row.operation)
    if isinstance(operation, Forget):
        return False
    if isinstance(operation, PutFile | DropFile):
        return True
    before = after = dict[str, int]()
    try:
        with member.replica.transaction() as transaction:
            before = _counts(transaction)
            transaction.apply(row.origin, operation, lambda _text: ())
            after = _counts(transaction)
            raise _TriedOut
    except _TriedOut:
        pass
    if after.get(SUPPRESSED_TABLE, 0) < before.get(SUPPRESSED_TABLE, 0):
        return True
    return not any(count > before.get(name, 0) for name, count in after.items())


def _counts(view: ReplicaView) -> dict[str, int]:
    return {table.name: table.count for table in view.digest().tables}

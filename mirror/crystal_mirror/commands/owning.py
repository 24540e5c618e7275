"""Whose book it is. A home may become another device's: restored from the recovery kit, it keeps its memory and gets new keys.

What the device before was asked, or was about to run, is not the new one's: its claims have other names, so that what ran there
would run here once more. Such a book is emptied, and counts as new.
"""

from crystal_mirror.commands.ports import CommandDatabase
from crystal_mirror.member import Member

META_OWNER = "owner"


def own_database(member: Member, book: CommandDatabase) -> bool:
    """Makes the book this device's. Returns whether it was another's."""
    if book.meta_get(META_OWNER) == member.device_id:
        return False
    with book.transaction() as transaction:
        before = transaction.meta_get(META_OWNER)
        if before == member.device_id:
            return False
        if before is not None:
            transaction.wipe()
        transaction.meta_set(META_OWNER, member.device_id)
        return before is not None

"""Files that came back to a home by another way than the sync: whose they are from then on, and what is known of them."""

from collections.abc import Container

from crystal_node.device.device import Device
from crystal_node.sync.files.book import FileDatabase
from crystal_node.sync.files.marker import Marker, write_marker
from crystal_node.sync.files.rounds import put_parts_back


def adopt_files(device: Device, there: Container[str], *, relay_lost: bool = False) -> None:
    """Makes the files that came back this device's, and gives up what is known of files that did not. ``there``: the paths of
    those that did; ``relay_lost``: the relay has no file of the vault, and gets those that are here.

    What did not come back was in nobody's way to be deleted: it comes again from the vault, and is not taken for deleted here.
    """
    home, member = device.settings.home, device.member
    book = FileDatabase.open(home.files_database)
    try:
        book.forget_seen([seen.local.path for seen in book.seen()])
        for agreed in [each for each in book.agreed() if not each.aside and each.path not in there]:
            book.drop_agreed(agreed.path)
        if relay_lost:
            put_parts_back(book)
    finally:
        book.close()
    write_marker(home.root, Marker(member.vault.hex(), member.device_id.hex()))

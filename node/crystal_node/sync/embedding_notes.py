"""Notes in the journal on embedding. Apart from the embedder, so that status and doctor load no model."""

from typing import TYPE_CHECKING

import msgspec

from crystal_core.state.vectors import passed_over

if TYPE_CHECKING:
    from crystal_node.device.device import Device

META_PROBLEM = "node.embedding-problem"
"""Why new texts get no vectors, in words; absent if they do."""
META_AGREED = "node.embedding-agreed"
"""The model whose cost the person has agreed to."""
META_UNAGREED = "node.embedding-unagreed"
"""The model that a backlog of texts waits for, because it costs money and nobody has agreed; absent otherwise."""
META_SET_ASIDE = "node.embedding-set-aside"
"""Rows of texts that got no vectors because the model's process died with each of them."""
SET_ASIDE_MAX = 1000

_rows = msgspec.msgpack.Decoder(list[int])


def note_set_aside(device: "Device", row: int) -> None:
    """Notes a text by its row; beyond ``SET_ASIDE_MAX`` the first noted is not counted any more."""
    with device.journal.transaction() as transaction:
        kept = transaction.meta_get(META_SET_ASIDE)
        rows = [*(each for each in _rows.decode(kept or b"\x90") if each != row), row][-SET_ASIDE_MAX:]
        transaction.meta_set(META_SET_ASIDE, msgspec.msgpack.encode(rows))


def texts_set_aside(device: "Device") -> int:
    """How many texts have no vectors because the model's process died with each of them."""
    kept = device.journal.meta_get(META_SET_ASIDE)
    return passed_over(device.replica.database, _rows.decode(kept)) if kept else 0

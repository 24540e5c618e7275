"""A vault that was dropped, deleted and made again, while a process that is late still deletes it."""

import pytest

from crystal_relay.memory import MemoryStore
from crystal_relay.store import Page
from tests.relay.test_sweeper import VAULTS, dropped, keys_of, put_all, sweeper


@pytest.mark.parametrize("objects", [1, 1500])
async def test_a_vault_that_was_made_again_is_not_deleted_by_a_process_that_is_late(objects: int) -> None:
    vault = VAULTS[0]
    again = {f"v/{vault}/mirror/1/zz{number}": b"new" for number in range(3)} | {
        f"r/vault/{vault}/record": b"new"
    }

    class Late(MemoryStore):
        """Before its last page of objects comes, another process finishes, and the vault is made again."""

        left = 1 + objects // 1000

        async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
            if prefix == f"v/{vault}/":
                self.left -= 1
                if self.left == 0:
                    await sweeper(self).run()
                    assert not await keys_of(self, f"r/vault/{vault}/")
                    await put_all(self, again.items())
            return await super().list(prefix, after=after, limit=limit)

    store = Late()
    await put_all(store, dropped(vault).items())
    await put_all(store, [(f"v/{vault}/mirror/1/{number:06d}", b"old") for number in range(objects)])
    await sweeper(store).run()
    assert await keys_of(store) == again.keys()

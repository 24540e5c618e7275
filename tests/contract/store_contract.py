"""What every store has to do, as tests. A store's tests are a class that inherits `StoreContract` and opens it:

    class TestMemoryStore(StoreContract):
        @asynccontextmanager
        async def opened(self, tmp_path):
            yield Opened(MemoryStore())

Keys are formed as a relay's channels have them, so that the same tests run through a server.
"""

from tests.contract.lists_contract import ListsContract
from tests.contract.objects_contract import ObjectsContract
from tests.contract.opened import Opened
from tests.contract.waits_contract import WaitsContract

__all__ = ["Opened", "StoreContract"]


class StoreContract(ObjectsContract, ListsContract, WaitsContract):
    """Inherit it, name the class Test…, and define `opened`. Set what differs."""

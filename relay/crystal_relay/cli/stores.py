"""Opens the store that `--store` names. Imports only the kind of store that is opened."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from crystal_relay.errors import BadRequest
from crystal_relay.store import Store

if TYPE_CHECKING:
    from crystal_relay.notify import Notifier

MEMORY = "memory:"
_HINT = "Use --store file:///directory, --store s3://bucket/prefix, or --store memory:"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The options that name a store."""

    address: str
    s3_endpoint: str | None = None
    s3_allow_http: bool = False

    @classmethod
    def of_options(cls, store: str | None, s3_endpoint: str | None, s3_allow_http: bool) -> "StorePlace":
        """The place from the options, by default in the home directory of the user."""
        return cls(store or (Path.home() / ".crystal-relay").as_uri(), s3_endpoint, s3_allow_http)

    @property
    def is_memory(self) -> bool:
        """Whether the store ends with its process."""
        return self.address == MEMORY

    @property
    def is_bucket(self) -> bool:
        """Whether it is a bucket, which any number of processes may use."""
        return self.address.startswith("s3:")

    @property
    def directory(self) -> Path | None:
        """The directory of a local store; None for other kinds. Raises BadRequest."""
        if self.is_memory or self.is_bucket:
            return None
        parts = urlsplit(self.address)
        directory = Path(unquote(parts.path))
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise BadRequest(f"{self.address}: not a store", hint=_HINT)
        if not directory.is_absolute():
            raise BadRequest(f"{self.address}: the directory has to be absolute", hint=_HINT)
        return directory


async def open_store(
    place: StorePlace,
    *,
    notifier: "Notifier | None" = None,
    announce: Callable[[str], None] | None = None,
    for_command: bool = False,
) -> Store:
    """Open the store, which the caller closes. Raises BadRequest, and what opening it raises.

    `notifier` wakes the waits of a store in a bucket; the other kinds have their own. `announce` is called with findings
    about the bucket; by default they go to stderr. `for_command`: a bucket that was tested lately is not tested again.
    """
    directory = place.directory
    if directory is not None:
        from crystal_relay.local import LocalStore

        return LocalStore(directory)
    if place.is_bucket:
        from crystal_relay.s3 import open_s3_store, parse_s3_address

        address = parse_s3_address(place.address, place.s3_endpoint, allow_http=place.s3_allow_http)
        return await open_s3_store(
            address, announce=announce or _announce, notifier=notifier, for_command=for_command
        )
    from crystal_relay.memory import MemoryStore

    return MemoryStore()


def _announce(text: str) -> None:
    print(f"crystal-relay: {text}", file=sys.stderr, flush=True)

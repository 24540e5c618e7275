"""Opens the store that `--store` names."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from crystal_relay.errors import BadRequest
from crystal_relay.store import Store

_HINT = "Use --store file:///directory, or --store memory:"


def default_store() -> str:
    """The address that counts without `--store`."""
    return (Path.home() / ".crystal-relay").as_uri()


def directory_of(address: str) -> Path | None:
    """The directory of a store that is one; None for any other kind. Raises BadRequest."""
    parts = urlsplit(address)
    if address == "memory:":
        return None
    directory = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise BadRequest(f"{address}: not a store", hint=_HINT)
    if not directory.is_absolute():
        raise BadRequest(f"{address}: the directory has to be absolute", hint=_HINT)
    return directory


async def open_store(address: str) -> Store:
    """The store of that address, which the caller closes. Raises BadRequest, and what opening it raises."""
    directory = directory_of(address)
    if directory is None:
        from crystal_relay.memory import MemoryStore

        return MemoryStore()
    from crystal_relay.local import LocalStore

    return LocalStore(directory)

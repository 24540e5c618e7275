"""The Secret Service of a Linux desktop, without what the `keyring` library loads to find it: 45 ms of each command.

Used where `config.json` remembers that keys are there. It does what `keyring.backends.SecretService.Keyring` does, with the
same items: what one has stored the other finds. Each call has a connection of its own: one that hangs is left to its thread.
"""

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from secretstorage import Collection, Item

SECRET_SERVICE: Final = "keyring.backends.SecretService.Keyring"

_APPLICATION: Final = "Python keyring library"


class SecretServiceKeyring:
    """The default collection, as `keyring` uses it. Raises what secretstorage raises."""

    priority: Final = 5.0

    def get_password(self, service: str, username: str) -> str | None:
        with _collection() as collection:
            item = _item(collection, service, username)
            if item is None:
                return None
            if item.is_locked():
                item.unlock()
            return item.get_secret().decode("utf-8")

    def set_password(self, service: str, username: str, password: str) -> None:
        with _collection() as collection:
            attributes = _attributes(service, username) | {"application": _APPLICATION}
            label = f"Password for '{username}' on '{service}'"
            collection.create_item(label, attributes, password.encode("utf-8"), replace=True)

    def delete_password(self, service: str, username: str) -> None:
        with _collection() as collection:
            item = _item(collection, service, username)
            if item is not None:
                item.delete()


@contextmanager
def _collection() -> "Generator[Collection]":
    import secretstorage

    with closing(secretstorage.dbus_init()) as connection:
        collection = secretstorage.get_default_collection(connection)
        if collection.is_locked():
            collection.unlock()
            if collection.is_locked():
                raise secretstorage.LockedException("the collection is locked")
        yield collection


def _item(collection: "Collection", service: str, username: str) -> "Item | None":
    return next(iter(collection.search_items(_attributes(service, username))), None)


def _attributes(service: str, username: str) -> dict[str, str]:
    return {"username": username, "service": service}

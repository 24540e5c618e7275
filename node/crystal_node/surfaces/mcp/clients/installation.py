"""The entries of one home in all clients. Installing twice changes nothing; an entry of an earlier installation is replaced;
one of that name that is not ours is left alone.

Before the first change a file is copied to ``….before-crystal``; the copy goes with the entry: nothing of another program's
settings, which may hold keys, stays behind in a file of ours.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from crystal_node.agent.hooks import jsondocument, jsonfile
from crystal_node.agent.hooks.every_tool import hooks_of
from crystal_node.agent.hooks.jsondocument import DamagedDocument
from crystal_node.base.errors import NoSuchEntry, UsageError
from crystal_node.base.settings import Settings
from crystal_node.surfaces.mcp.clients import json_form, toml_form
from crystal_node.surfaces.mcp.clients.entries import NAME, EntryOwner
from crystal_node.surfaces.mcp.clients.places import FileForm, McpClient, clients_of


class ClientState(StrEnum):
    """The status of one client.

    ABSENT: there is no such program. OTHER: it has a server of our name that is not ours. OUTDATED: of an earlier installation.
    """

    ABSENT = "absent"
    MISSING = "missing"
    INSTALLED = "installed"
    OUTDATED = "outdated"
    OTHER = "other"


class NotOurs(UsageError):
    """There is a server of our name that is another's."""

    hint = "Rename or remove that one first; it was left as it is."


@dataclass(frozen=True, slots=True)
class ClientLook:
    """One client and its status."""

    client: McpClient
    state: ClientState


class McpClients:
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self._owner = EntryOwner.of(settings)
        self._clients = clients_of(settings)
        self._hooks = {hooks.settings_file: hooks for hooks in hooks_of(settings) if hooks.settings_file}

    @property
    def all(self) -> list[McpClient]:
        return self._clients

    def named(self, names: Sequence[str]) -> list[McpClient]:
        """Those clients; without names those that are there. Raises Usage."""
        known = {client.name: client for client in self._clients}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UsageError(
                f"there is no client {unknown[0][:80]!r}", hint=f"Known are: {', '.join(known)}."
            )
        if names:
            return [known[name] for name in dict.fromkeys(names)]
        return [client for client in self._clients if client.there]

    def look(self, client: McpClient) -> ClientLook:
        """Its status. Raises DamagedDocument."""
        if not client.there:
            return ClientLook(client, ClientState.ABSENT)
        with _named(client.file):
            text = jsonfile.read_text(client.file) or ""
            found = (toml_form if client.form is FileForm.TOML else json_form).entry_in(text, client.at)
        if found is None:
            return ClientLook(client, ClientState.MISSING)
        if not self._owner.owns(found):
            return ClientLook(client, ClientState.OTHER)
        current = found == self._owner.entry(client.entry)
        return ClientLook(client, ClientState.INSTALLED if current else ClientState.OUTDATED)

    def install(self, client: McpClient) -> bool:
        """Install the entry. Returns whether anything was changed.

        Raises:
            NoSuchEntry: there is no such program here.
            NotOurs, DamagedDocument, HomeBusy, LocalStorage: nothing was changed.
        """
        state = self.look(client).state
        if state is ClientState.ABSENT:
            raise NoSuchEntry(
                f"there is no {client.title} on this machine: no folder {client.folder}",
                hint="Start it once, or put the entry in by hand: docs/mcp.md.",
            )
        if state is ClientState.OTHER:
            raise NotOurs(f"{client.file} has an MCP server {NAME} that is not this home's")
        entry = self._owner.entry(client.entry)
        form = toml_form if client.form is FileForm.TOML else json_form
        with _named(client.file):
            # A copy with our hooks in it would be none of what was there before.
            backup = None if self._hooked(client) else client.backup
            return jsonfile.change(
                client.file, lambda text: form.with_entry(text, client.at, entry), backup=backup
            )

    def uninstall(self, client: McpClient) -> list[Path]:
        """Remove the entry from every file that this program reads. Returns the files that had one. Raises as ``install``."""
        changed = [file for file in self.holding(client) if self._take_out(client, file)]
        text = jsonfile.read_text(client.file)
        made_here = client.file in changed and not client.backup.exists()
        if made_here and text is not None and _empty(client, text):
            jsonfile.remove(client.file)
        if not self._hooked(client):
            with suppress(FileNotFoundError):
                client.backup.unlink()
        return changed

    def leaves(self, client: McpClient) -> bool:
        """Whether anything of ours is there: an entry or a copy. Raises DamagedDocument."""
        copied = client.backup.exists() and not self._hooked(client)
        return copied or bool(self.holding(client))

    def _hooked(self, client: McpClient) -> bool:
        """Whether hooks of ours are in the same file, which need the copy as well."""
        hooks = self._hooks.get(client.file)
        return hooks is not None and hooks.holds(jsonfile.read_text(client.file) or "")

    def holding(self, client: McpClient) -> list[Path]:
        """The files that hold an entry of ours. Raises DamagedDocument."""
        return [file for file in dict.fromkeys((client.file, *client.also)) if self._holds(client, file)]

    def _holds(self, client: McpClient, file: Path) -> bool:
        with _named(file):
            text = jsonfile.read_text(file)
            if text is None or NAME not in text:
                return False
            if client.form is FileForm.TOML:
                return self._owner.owns(toml_form.entry_in(text, client.at))
            return any(json_form.ours_in(text, client.at, self._owner))

    def _take_out(self, client: McpClient, file: Path) -> bool:
        def taken(text: str) -> str:
            if client.form is FileForm.TOML:
                left = toml_form.without_entry(text, client.at, self._owner)
            else:
                left = json_form.without_entries(text, client.at, self._owner)
            before = jsonfile.read_text(client.backup) if file == client.file else None
            # What differs from before by nothing that anybody wrote is put back as it was, to the byte.
            if before is not None and _same(client, left, before):
                return before
            return left if file != client.file or left == text else _without_empty(client, left, before)

        with _named(file):
            return jsonfile.change(file, taken)


def _same(client: McpClient, left: str, before: str) -> bool:
    """Whether two states of a file differ by empty places alone that came with our entry."""
    if client.form is FileForm.TOML:
        return left.strip() == before.strip()
    if not before.strip():
        return _empty(client, left)
    with suppress(DamagedDocument):
        return jsondocument.same(_pruned(client, left), _pruned(client, before))
    return False


def _without_empty(client: McpClient, left: str, before: str | None) -> str:
    """Without the empty objects on the way to the servers that were not there before our entry."""
    if client.form is FileForm.TOML:
        return left
    there = jsondocument.parse(before) if before and before.strip() else None
    for depth in range(len(client.at), 0, -1):
        path = client.at[:depth]
        if (
            jsondocument.value_at(there, path) is None
            and jsondocument.value_at(jsondocument.parse(left), path) == {}
        ):
            left = jsondocument.without(left, path)
    return left


def _pruned(client: McpClient, text: str) -> str:
    """A JSON document without the objects on the way to the servers that are empty."""
    for depth in range(len(client.at), 0, -1):
        if jsondocument.value_at(jsondocument.parse(text), client.at[:depth]) == {}:
            text = jsondocument.without(text, client.at[:depth])
    return text


def _empty(client: McpClient, text: str) -> bool:
    return (
        not text.strip() if client.form is FileForm.TOML else jsondocument.parse(_pruned(client, text)) == {}
    )


@contextmanager
def _named(file: Path) -> Generator[None]:
    """Put the file's name before the error."""
    try:
        yield
    except DamagedDocument as error:
        if str(file) in str(error):
            raise
        raise DamagedDocument(f"{file} cannot be changed: {error}") from None

"""Sources: folders of a person that are read into the memory, kept up to date, and found by every device.

``add``, ``sync``, ``status`` and ``remove`` are what commands, MCP and the gateway call, with typed answers (``results``).

| module | what it knows |
|---|---|
| `ignoring` | ignore files, as git has them |
| `kinds` | what a file is by its name, and what is never looked at |
| `scan` | one pass over a folder, which opens no file |
| `reading` | one file: read, decoded, freed of credentials, cut |
| `extracting`, `extractor` | PDF and HTML made text, in a child that may die |
| `batches` | files read in batches, in a thread |
| `operations` | documents as operations |
| `book` | `state/sources.db`: what was read, and when |
| `syncing` | from what stands there to what the memory has |
| `acting` | the four actions on an opened device |
| `job` | the agent's duty |
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings
    from crystal_node.derive.sources.results import SourceAdded, SourceRemoved, SourcesStatus, SourcesSynced


def add(
    settings: "Settings",
    path: Path,
    *,
    name: str = "",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> "SourceAdded":
    """Makes a folder, or a file, a source of this device. Without a name it gets the folder's."""
    from crystal_node.derive.sources.service import add_source
    from crystal_node.device.device import opened

    with opened(settings) as device:
        return add_source(device, path, name=name, include=include, exclude=exclude)


async def sync(
    settings: "Settings",
    name: str | None = None,
    *,
    confirmed: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    seconds: float | None = None,
) -> "SourcesSynced":
    """Reads what is new in one source of this device, or in all, and drops what is gone. ``confirmed``: however much that is.
    In ``seconds`` as much as that allows; the next call goes on."""
    from crystal_node.derive.sources.service import sync_sources
    from crystal_node.device.device import opened

    with opened(settings) as device:
        return await sync_sources(device, name, confirmed=confirmed, progress=progress, seconds=seconds)


def status(settings: "Settings") -> "SourcesStatus":
    """All sources of the vault, and how they stand."""
    from crystal_node.derive.sources.service import sources_status
    from crystal_node.device.device import opened

    with opened(settings) as device:
        return sources_status(device)


def remove(settings: "Settings", name: str) -> "SourceRemoved":
    """Removes a source and all its documents, on every device. Files stay as they are."""
    from crystal_node.derive.sources.service import remove_source
    from crystal_node.device.device import opened

    with opened(settings) as device:
        return remove_source(device, name)

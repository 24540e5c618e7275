"""Sources: folders of a person that are read into the memory, kept up to date, and found by every device.

``add``, ``sync``, ``status`` and ``remove`` are what commands, MCP and the gateway call, with typed answers (``results``).

| module | what it knows |
|---|---|
| `ignorefiles` | ignore files, with git's rules |
| `filetypes` | what a file is by its name, and what is never read |
| `scan` | one pass over a folder, which opens no file |
| `reader` | files read in batches: decoded, freed of credentials, cut into passages |
| `extraction`, `extraction_child` | text of PDF and HTML, made in a child process that may die |
| `database` | `state/sources.db`: what was read, and when |
| `syncer` | brings the memory up to what is in a source |
| `service` | the four actions on an open device |
| `job` | the background job |
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
    """Makes a folder or a file a source of this device, by default under the folder's name."""
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
    ``seconds``: limit; the next call goes on."""
    from crystal_node.derive.sources.service import sync_sources
    from crystal_node.device.device import opened

    with opened(settings) as device:
        return await sync_sources(device, name, confirmed=confirmed, progress=progress, seconds=seconds)


def status(settings: "Settings") -> "SourcesStatus":
    """The status of all sources of the vault."""
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

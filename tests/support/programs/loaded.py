"""What programs import, so that a process that imported this module can become one of them.

Importing any of it makes no thread, connection or model.
"""

import encodings.idna
import pkgutil
from importlib import import_module
from types import ModuleType

import apscheduler.schedulers.asyncio
import apsw
import httpx
import onnxruntime
import uvicorn.protocols.http.httptools_impl
import uvloop
import watchfiles

import crystal_core
import crystal_crypto
import crystal_mirror
import crystal_node
import crystal_relay

_LEFT_OUT = ("crystal_node.surfaces.mcp",)
"""Imports the `mcp` package, which takes longer than all others together; few programs need it."""


def _modules(package: ModuleType) -> list[str]:
    """All modules of a package, by name, but for those that act when they are imported."""
    found: list[str] = []
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name.startswith(_LEFT_OUT) or module.name.endswith(".__main__"):
            continue
        found.append(module.name)
        if module.ispkg:
            found += _modules(import_module(module.name))
    return found


LOADED = (
    apscheduler.schedulers.asyncio,
    apsw,
    encodings.idna,
    httpx,
    onnxruntime,
    uvicorn.protocols.http.httptools_impl,
    uvloop,
    watchfiles,
    *(
        import_module(name)
        for package in (crystal_crypto, crystal_mirror, crystal_core, crystal_relay, crystal_node)
        for name in _modules(package)
    ),
)

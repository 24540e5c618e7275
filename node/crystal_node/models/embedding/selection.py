"""Which embedding model this device uses.

::

    vectors are of     settings name     a Core makes new ones with   a query is embedded with
    none yet           anything          what is named                nothing: there is nothing to find
    the built-in       anything else     the built-in                 the built-in
    the built-in       none              nothing                      the built-in
    another            the same one      that one                     that one
    another            yet another       nothing, until `migrate`     nothing: keywords, and the note says so

The built-in model needs no consent, because no text leaves the process. Any other is used only if this device's own settings
name it; other devices' choices and the vault's log send no text anywhere.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from crystal_core.embed.identities import ModelIdentity, parse_identity
from crystal_node.models.embedding.embedder import HeldEmbedder, NoEmbedder

if TYPE_CHECKING:
    from crystal_node.base.settings import Settings

BUILTIN = "builtin"
NONE = "none"


def embedder_for(
    settings: "Settings", kept: str = "", *, threads: int | None = None, worker: bool = False
) -> HeldEmbedder:
    """The embedder of a Core whose vault has vectors of the model ``kept`` ("" while it has none).

    It is the model that the settings name, except that vectors of the built-in model are continued until they are migrated.
    Making it is cheap and sends no request. ``worker``: see ``builtin``.

    Raises:
        EmbedderRefused: the settings cannot be used: no key, address or package.
        LocalStorage: the file with the keys can be read by others.
    """
    provider = settings.embedding.provider
    if provider == NONE:
        return NoEmbedder("embedding is switched off on this device")
    if provider == BUILTIN or is_builtin(kept):
        return builtin(threads, worker=worker)
    return named(settings, kept)


def named(settings: "Settings", kept: str = "") -> HeldEmbedder:
    """The embedder that the settings name, regardless of the vault's. Raises as ``embedder_for``."""
    provider = settings.embedding.provider
    if provider == BUILTIN:
        return builtin(None)
    if provider == NONE:
        return NoEmbedder("embedding is switched off on this device")
    from crystal_node.models.embedding.providers import provided

    return provided(settings, parse_identity(kept))


def query_embedder(
    settings: "Settings", identity: str | None, *, worker: bool = False
) -> tuple[HeldEmbedder | None, str]:
    """The embedder of queries for a vault with vectors of the model ``identity``, or None and the reason, which names the fix.

    Sends no request. ``worker``: see ``builtin``.
    """
    if not identity:
        return None, "the memory holds no vectors yet"
    from crystal_core.embed.port import EmbeddingError

    try:
        if is_builtin(identity):
            return builtin(1, worker=worker), ""
    except EmbeddingError as error:  # its manifest is missing or damaged
        return None, f"{error}. {error.hint}".rstrip(".")
    wanted = parse_identity(identity)
    if wanted is None:
        return None, f"the vectors were made by {identity}, which this version does not know"
    if settings.embedding.provider != wanted.provider:
        return None, _not_chosen(wanted)
    from crystal_node.base.errors import LocalStorage
    from crystal_node.models.embedding.providers import provided

    try:
        found = provided(settings, wanted)
        if not found.known or found.identity != identity:
            found.close()
            return None, _other_model(wanted)
    except (EmbeddingError, LocalStorage) as error:
        return None, f"{error}. {error.hint}".rstrip(".")
    return found, ""


def is_builtin(identity: str) -> bool:
    """Whether vectors are of this version's built-in model."""
    return bool(identity) and identity == _builtin_identity()


def builtin(threads: int | None, *, worker: bool = False) -> HeldEmbedder:
    """The built-in model. ``worker``: in a process of its own, which saves memory in a process that lives long."""
    if worker:
        from crystal_node.models.embedding.worker import WorkerEmbedder

        return WorkerEmbedder(threads=threads)
    from crystal_core.embed.builtin import BuiltinEmbedder

    return BuiltinEmbedder(threads=threads)


@lru_cache(maxsize=1)
def _builtin_identity() -> str:
    from crystal_core.embed.builtin import BuiltinEmbedder

    return BuiltinEmbedder().identity


def _other_model(wanted: ModelIdentity) -> str:
    return (
        f"the vault's vectors are made by {wanted.model} ({wanted.provider}, {wanted.dimensions:,} numbers), and this device "
        f"is set to another model: `crystal config set embedding_model {wanted.model}`"
    )


def _not_chosen(wanted: ModelIdentity) -> str:
    return (
        f"the vault's vectors are made by {wanted.model} ({wanted.provider}), which this device has not chosen: "
        f"`crystal config set embedding_provider {wanted.provider}`"
    )

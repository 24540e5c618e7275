"""Status of embedding on this device, for ``crystal embed status``. Tries the model with one sentence."""

from contextlib import closing
from dataclasses import dataclass

from crystal_core.embed.port import EmbeddingError
from crystal_mirror.entries.control_state import META_MODEL
from crystal_node.base.errors import LocalStorage
from crystal_node.device.device import Device
from crystal_node.models.embedding.prepared import PreparedVectors
from crystal_node.models.embedding.selection import BUILTIN, embedder_for
from crystal_node.models.embedding.vault_embedder import VaultEmbedder
from crystal_node.sync.embedding_notes import META_PROBLEM, texts_set_aside

_SENTENCE = "What did we decide last week?"


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    """``vault``: the model of the vault's vectors; ``own``: the model of this device's settings; "" for none. ``lacking``: how
    many of ``texts`` have no vectors, ``set_aside`` of these because the model died with them. ``made``: how many are made for
    the next model. ``works``: queries are embedded. ``problem``: what is wrong, and how to fix it."""

    vault: str
    own: str
    destination: str
    leads: bool
    texts: int
    lacking: int
    set_aside: int
    made: int
    made_model: str
    works: bool
    problem: str

    def document(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "vault_model": self.vault or None,
            "own_model": self.own or None,
            "destination": self.destination or None,
            "leads": self.leads,
            "texts": self.texts,
            "without_vectors": self.lacking,
            "set_aside": self.set_aside,
            "migration": {"model": self.made_model, "made": self.made} if self.made_model else None,
            "queries": "hybrid" if self.works else "keyword",
            "problem": self.problem or None,
        }


def embedding_status(device: Device) -> EmbeddingStatus:
    """Collects it. A remote provider is sent one sentence of ours."""
    settings, database = device.settings, device.replica.database
    vault = (device.replica.meta_get(META_MODEL) or b"").decode()
    problem, own, works = (device.journal.meta_get(META_PROBLEM) or b"").decode(), "", False
    try:
        with closing(embedder_for(settings, vault)) as embedder:
            own = embedder.identity
            if not vault and own:
                embedder.embed_query(_SENTENCE)
    except (EmbeddingError, LocalStorage) as error:
        problem = f"{error}. {error.hint}"
    if vault:
        with VaultEmbedder(settings, database) as queries:
            try:
                queries.look()
                queries.embed_query(_SENTENCE)
                works = True
            except (EmbeddingError, LocalStorage) as error:
                problem = queries.reason or f"{error}. {error.hint}"
    made, made_model = _made(device)
    texts = int(
        database.value(
            "SELECT count(*) FROM chunks WHERE provisional = 0 AND rowid NOT IN (SELECT chunk FROM actions)"
        )
    )
    with_vectors = int(
        database.value(
            "SELECT count(*) FROM chunks WHERE provisional = 0 AND EXISTS (SELECT 1 FROM windows WHERE chunk = chunks.rowid)"
            " AND rowid NOT IN (SELECT chunk FROM actions)"
        )
    )
    return EmbeddingStatus(
        vault=vault,
        own=own,
        destination=_destination(device),
        leads=device.member.is_core,
        texts=texts,
        lacking=texts - with_vectors,
        set_aside=texts_set_aside(device),
        made=made,
        made_model=made_model,
        works=works,
        problem=problem,
    )


def _made(device: Device) -> tuple[int, str]:
    path = device.settings.home.embedding_database
    if not path.exists():
        return 0, ""
    with closing(PreparedVectors.open(path)) as made:
        return made.count(), made.model


def _destination(device: Device) -> str:
    if device.settings.embedding.provider == BUILTIN:
        return ""
    from crystal_node.models.embedding.providers import destination  # lazy: loads the HTTP client

    return destination(device.settings)

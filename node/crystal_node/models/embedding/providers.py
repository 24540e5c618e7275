"""Makes a provider's embedder from this device's settings. Imported when one is used, because it loads the web client."""

from pathlib import Path

from crystal_core.embed.identities import ModelIdentity, checked_model
from crystal_core.embed.port import EmbedderRefused
from crystal_core.embed.prices import DEFAULTS, known_model
from crystal_core.llm.errors import LlmError
from crystal_node.base.settings import Settings
from crystal_node.base.settings.api_keys import KeyOwner, api_key
from crystal_node.models.embedding.google import GOOGLE_URL, GoogleEmbedder
from crystal_node.models.embedding.multilingual import PROVIDER as MULTILINGUAL
from crystal_node.models.embedding.multilingual import MultilingualEmbedder
from crystal_node.models.embedding.ollama import OllamaEmbedder
from crystal_node.models.embedding.openai import OPENAI_URL, OpenAiEmbedder
from crystal_node.models.embedding.remote import RemoteEmbedder
from crystal_node.models.embedding.sentence_transformers import SentenceEmbedder
from crystal_node.models.embedding.windows import LONG, SHORT, WindowScheme

LONG_TOKENS = 2048
INGEST_PATIENCE_SECONDS = 4.0
"""How long a batch of new texts waits for a provider before it is committed without vectors."""
MIGRATION_PATIENCE_SECONDS = 300.0


def provided(
    settings: Settings, kept: ModelIdentity | None = None, *, patience: float = INGEST_PATIENCE_SECONDS
) -> RemoteEmbedder:
    """The embedder of the provider that the settings name. ``kept``: the model of the vault's vectors, whose dimensions are
    known.

    Raises:
        EmbedderRefused: there is no key, or it would be sent to another address than its own.
        EmbeddingError: the model's name cannot be used.
        LocalStorage: the file with the keys can be read by others.
    """
    chosen = settings.embedding
    provider = chosen.provider
    if provider == MULTILINGUAL:
        return MultilingualEmbedder(patience=patience)
    place = chosen.model or DEFAULTS[provider]
    model = checked_model(_shown(provider, place))
    known = known_model(provider, model)
    same = kept is not None and (kept.provider, kept.model) == (provider, model)
    dimensions = known.dimensions if known else kept.dimensions if same and kept else 0
    scheme = _scheme(known.tokens if known else LONG_TOKENS)
    before = (known.document, known.query) if known else ("", "")
    if provider == "ollama":
        url = chosen.url or chosen.ollama_host
        return OllamaEmbedder(url, model, dimensions, scheme, before=before, patience=patience)
    if provider == "openai":
        url, key = chosen.url or OPENAI_URL, _key(settings, KeyOwner.OPENAI)
        return OpenAiEmbedder(url, model, dimensions, scheme, key=key, patience=patience)
    if provider == "google":
        url, key = chosen.url or GOOGLE_URL, _key(settings, KeyOwner.GOOGLE)
        return GoogleEmbedder(url, model, dimensions, scheme, key=key, patience=patience)
    return SentenceEmbedder(place, model, dimensions, scheme, patience=patience)


def destination(settings: Settings) -> str:
    """The server that texts go to; "" if they stay in this process."""
    chosen = settings.embedding
    url = {"ollama": chosen.ollama_host, "openai": OPENAI_URL, "google": GOOGLE_URL}.get(chosen.provider, "")
    if not url:
        return ""
    from urllib.parse import urlsplit

    return urlsplit(chosen.url or url).netloc.rpartition("@")[2]


def _key(settings: Settings, owner: KeyOwner) -> str:
    """The provider's key for the provider's own address only; a server at another address has its own key, or none."""
    other = bool(settings.embedding.url)
    try:
        key = api_key(KeyOwner.EMBEDDING if other else owner, settings.home)
    except LlmError as error:
        raise EmbedderRefused(str(error), hint=error.hint) from error
    if key is None and not other:
        raise EmbedderRefused(
            f"there is no key for {owner}",
            hint=f"Set {owner.variable}, or write it into {settings.home.database.parent / '.env'} (chmod 600).",
        )
    return key.reveal() if key else ""


def _shown(provider: str, place: str) -> str:
    """A model's name in its identity: for a folder, only its last part."""
    if provider == "sentence-transformers" and place.startswith(("/", "~", ".")):
        return Path(place).name
    return place


def _scheme(tokens: int) -> WindowScheme:
    return LONG if tokens >= LONG_TOKENS else SHORT

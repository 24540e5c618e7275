"""Which language model this device uses: the one that its settings name, or the first that is available.

    auto:  MLX on :8080 ─► Ollama (without embedding models) ─► OpenAI, with a key ─► Anthropic, with a key ─► none

A named provider is used or is an error, never replaced by another: where text goes, and what it costs, is the person's choice.
Discovery is quick (``LOOK_SECONDS_MAX`` each) and asks only addresses of this machine and configured ones.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import httpx
import msgspec

from crystal_core.llm.port import Llm, Refused, Unavailable
from crystal_node.base.decoding import from_json
from crystal_node.base.settings import Settings, child_environment
from crystal_node.base.settings.api_keys import ApiKey, KeyOwner, api_key
from crystal_node.models.llm.addresses import MLX_URL, is_loopback, is_strangers, listens_here
from crystal_node.models.llm.anthropic import Anthropic
from crystal_node.models.llm.claude_cli import ClaudeCli
from crystal_node.models.llm.http import OK, PLAIN, is_packed
from crystal_node.models.llm.ollama import Ollama
from crystal_node.models.llm.openai import compatible, openai

T = TypeVar("T")
LOOK_SECONDS_MAX = 1.0
LIST_BYTES_MAX = 1024 * 1024
_EMBEDDERS = ("embed", "minilm", "bge", "e5-", "gte-")


class _Details(msgspec.Struct):
    family: str | None = None
    families: list[str] | None = None


class _OllamaModel(msgspec.Struct):
    name: str
    details: _Details | None = None
    capabilities: list[str] | None = None


class _OllamaModels(msgspec.Struct):
    models: list[_OllamaModel]


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def find_llm(settings: Settings, provider: str = "", *, mlx_url: str = MLX_URL) -> Llm | None:
    """The language model of these settings, or of ``provider`` instead. None for ``none``, and if ``auto`` finds none. Blocks
    during discovery.

    Raises:
        LlmError: the named provider is not available, or cannot be used as configured.
        LocalStorage: the file with the keys can be read by others.
    """
    dreams = settings.dreams
    name, model = provider or dreams.provider, dreams.model
    chosen: dict[str, Callable[[], Llm | None]] = {
        "none": lambda: None,
        "auto": lambda: _first(settings, mlx_url),
        "mlx": lambda: _mlx(mlx_url, model) or _missing("mlx", mlx_url),
        "ollama": lambda: _ollama(settings) or _missing("ollama", dreams.ollama_host),
        "openai": lambda: openai(_needed(KeyOwner.OPENAI, settings).reveal(), model),
        "anthropic": lambda: Anthropic(_needed(KeyOwner.ANTHROPIC, settings).reveal(), model),
        "openai-compatible": lambda: _compatible(settings),
        "claude-cli": lambda: ClaudeCli(model, environment=child_environment({})),
    }
    if name not in chosen:
        raise Refused(
            f"there is no provider {name!r}",
            hint=f"Use one of {', '.join(chosen)}.",
        )
    return chosen[name]()


def find_llm_here(settings: Settings, *, mlx_url: str = MLX_URL) -> Llm | None:
    """The first that ``auto`` finds on this machine, so that no text leaves it."""
    if listens_here(mlx_url) and (found := _mlx(mlx_url, settings.dreams.model)) is not None:
        return found
    return _ollama(settings) if listens_here(settings.dreams.ollama_host) else None


def _first(settings: Settings, mlx_url: str) -> Llm | None:
    model = settings.dreams.model
    if not is_strangers(mlx_url) and (found := _mlx(mlx_url, model)) is not None:
        return found
    ollama_away = is_loopback(settings.dreams.ollama_host) and is_strangers(settings.dreams.ollama_host)
    if not ollama_away and (ollama := _ollama(settings)) is not None:
        return ollama
    if (key := _usable(KeyOwner.OPENAI, settings)) is not None:
        return openai(key.reveal(), model)
    if (key := _usable(KeyOwner.ANTHROPIC, settings)) is not None:
        return Anthropic(key.reveal(), model)
    return None


def _usable(owner: KeyOwner, settings: Settings) -> ApiKey | None:
    """For ``auto``: the key, if there is one; a subscription's token counts as none."""
    try:
        return api_key(owner, settings.home)
    except Refused:
        return None


def _missing(provider: str, url: str) -> Llm:
    raise Unavailable(f"{provider} does not answer at {url}, or has no model for text to offer")


def _needed(owner: KeyOwner, settings: Settings) -> ApiKey:
    key = api_key(owner, settings.home)
    if key is None:
        raise Refused(
            f"there is no key for {owner}",
            hint=f"Set {owner.variable}, or write it into {settings.home.database.parent / '.env'} (chmod 600).",
        )
    return key


def _compatible(settings: Settings) -> Llm:
    dreams = settings.dreams
    if not dreams.url:
        raise Refused(
            "no address of an OpenAI-compatible server is set",
            hint="Set it: `crystal config set llm_url http://127.0.0.1:8080/v1`.",
        )
    key = api_key(KeyOwner.COMPATIBLE, settings.home)
    return compatible(dreams.url, dreams.model, key=key.reveal() if key else "")


def _mlx(url: str, model: str) -> Llm | None:
    found = _listed(f"{url}/models", _Models)
    if found is None:
        return None
    named = next((one.id for one in found.data), "")
    return compatible(url, model or named, provider="mlx")


def _ollama(settings: Settings) -> Llm | None:
    dreams = settings.dreams
    host = dreams.ollama_host.rstrip("/")
    found = _listed(f"{host}/api/tags", _OllamaModels)
    if found is None:
        return None
    wanted = dreams.ollama_model or (dreams.model if dreams.provider == "ollama" else "")
    names = [one.name for one in found.models if not _only_embeds(one)]
    if wanted:
        return Ollama(host, wanted) if any(_same(name, wanted) for name in names) else None
    return Ollama(host, names[0]) if names else None


def _same(name: str, wanted: str) -> bool:
    return name in (wanted, f"{wanted}:latest")


def _only_embeds(model: _OllamaModel) -> bool:
    if model.capabilities is not None:
        return "completion" not in model.capabilities
    details = model.details or _Details()
    families = {family.lower() for family in [details.family or "", *(details.families or [])]}
    name = model.name.lower()
    return any("bert" in family for family in families) or any(part in name for part in _EMBEDDERS)


def _listed(url: str, kind: type[T]) -> T | None:
    """A server's list of models; None if nothing valid answers."""
    try:
        data = asyncio.run(_read(url))
        return None if data is None else from_json(data, kind)
    except (
        TimeoutError,
        httpx.HTTPError,
        httpx.InvalidURL,
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
    ):
        return None


async def _read(url: str) -> bytes | None:
    """The whole answer, within ``LOOK_SECONDS_MAX`` however slowly it comes."""
    async with (
        asyncio.timeout(LOOK_SECONDS_MAX),
        httpx.AsyncClient(headers=PLAIN, timeout=None, trust_env=not is_loopback(url)) as client,  # noqa: S113
        client.stream("GET", url) as response,
    ):
        if response.status_code != OK or is_packed(response):
            return None
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > LIST_BYTES_MAX:
                return None
        return bytes(data)

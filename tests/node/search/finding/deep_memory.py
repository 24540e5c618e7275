"""A memory that deep searches are tested on, and models that answer as a test wants them to."""

import json
from typing import Any

from crystal_core.deep.prompts import EXPAND
from crystal_node.base.settings import Settings, resolve
from crystal_node.search.finding.documents import Depth, SearchDocument, SearchRequest
from crystal_node.search.finding.finder import Finder
from tests.support.llm_server import LlmServer, Model
from tests.support.machine import Machine

SAID = (
    "The crane driver gives up after eleven attempts in an hour.",
    "Ingrid services the harbour crane every second Tuesday.",
    "Readings of the crane's sensors are kept for ninety days.",
    "The crane at the quay squeaks when it turns left.",
    "Tuesday's stand-up moves to nine because of the crane.",
)
WANTED = SAID[1]
EXPANSION = {
    "lexical": "maintenance derrick",
    "rephrased": "Who looks after the harbour crane?",
    "hypothetical": "Somebody services the crane.",
}


def model(*, best: str = WANTED, expansion: Any = EXPANSION) -> Model:
    """Expands as told, and finds one text right and all others wrong."""

    def answer(system: str, data: str) -> str:
        if system == EXPAND:
            return json.dumps(expansion)
        texts = json.loads(data)["texts"]
        return json.dumps({"scores": {str(one["n"]): 10 if one["text"] == best else 0 for one in texts}})

    return answer


def settings_of(machine: Machine, server: LlmServer | None = None, **variables: str) -> Settings:
    """Ollama's address is the server's, or one where nobody listens."""
    host = server.url if server else "http://127.0.0.1:1"
    environment = (
        machine.environment | {"CRYSTAL_HOME": str(machine.home), "CRYSTAL_OLLAMA_HOST": host} | variables
    )
    return resolve(environment=environment)


def search(settings: Settings, query: str = "who services the crane", **request: Any) -> SearchDocument:
    with Finder(settings) as finder:
        return finder.search(SearchRequest(query=query, explain=True, **request))


def texts(found: SearchDocument) -> list[str]:
    return [one.text for one in found.results]


FAST = {"depth": Depth.FAST}

"""Embedding models, and which of them this device uses. They implement the port ``crystal_core.embed.port.Embedder``.

| module | holds |
|---|---|
| `selection` | ``embedder_for`` (a Core's) and ``query_embedder`` (a search's), from the settings |
| `vault_embedder` | ``VaultEmbedder``: embeds queries, follows the model of the open memory |
| `providers` | makes a provider's embedder; imported when one is used |
| `remote` | what all providers share: windows, batches, checks, the comparison with the vault |
| `openai`, `google`, `ollama`, `sentence_transformers`, `multilingual` | one provider each |
| `http`, `windows` | how they send requests, and how texts are cut |
| `worker` | ``WorkerEmbedder``: the built-in model in a process of its own, for the background service |
| `prepared` | vectors of the next model, until the vault changes over |
| `embedder` | ``HeldEmbedder``: an embedder and what its owner needs; ``NoEmbedder``: makes no vectors |

Text goes to a remote provider only if this device's own settings name it. Importing this package loads no web client, no model
and no NumPy.
"""

from crystal_node.models.embedding.embedder import HeldEmbedder
from crystal_node.models.embedding.selection import embedder_for, query_embedder
from crystal_node.models.embedding.vault_embedder import VaultEmbedder

__all__ = ["HeldEmbedder", "VaultEmbedder", "embedder_for", "query_embedder"]

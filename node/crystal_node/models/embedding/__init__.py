"""Providers of vectors, and which of them this device uses. They implement the port ``crystal_core.embed.port.Embedder``.

| module | what it is |
|---|---|
| `choosing` | ``embedder_for`` (a Core's) and ``query_embedder`` (anybody's who searches), from the settings |
| `vaults` | ``VaultEmbedder``: for queries, follows the model of the memory that is open |
| `providers` | makes a provider's embedder; imported when one is really used |
| `remote` | what all of them share: windows, batches, checks, the comparison with the vault (`samples`) |
| `openai`, `google`, `ollama`, `sentence` | one provider each; `http`, `windows`: how they send, and how texts are cut |
| `ingesting` | new texts in the Core's rounds, which nothing of a provider holds up |
| `migrating`, `made` | from one model to another: the cost, and the next vectors until the vault changes over |
| `standing`, `notes` | what is told of all this, and what the journal keeps of it |
| `held` | ``HeldEmbedder``: an embedder with what its owner needs to hold it; ``NoEmbedder``: one that makes none |

Text goes to a remote provider only where the settings of this very device name it. Importing this package loads no web client,
no model and no NumPy.
"""

from crystal_node.models.embedding.embedder import HeldEmbedder
from crystal_node.models.embedding.selection import embedder_for, query_embedder
from crystal_node.models.embedding.vault_embedder import VaultEmbedder

__all__ = ["HeldEmbedder", "VaultEmbedder", "embedder_for", "query_embedder"]

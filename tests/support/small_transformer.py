"""A model for sentence-transformers that is made here: random weights, the shipped tokenizer, nothing from a hub.

Its vectors are averages of its words' directions, so that texts that share words are near; that is all that a test needs.
"""

import importlib
from pathlib import Path
from typing import Any

from crystal_core.embed.builtin import __file__ as _builtin

_DIMENSIONS = 96


def made_transformer(folder: Path) -> str:
    """Makes one in ``folder`` and returns its path. Needs the extra."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    library: Any = importlib.import_module("sentence_transformers")
    torch.manual_seed(7)
    shipped = Path(_builtin).parent / "model" / "tokenizer.json"
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(shipped),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=512,
    )
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=_DIMENSIONS,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
    )
    model = transformers.BertModel(config)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.mul_(50)
    parts = folder / "parts"
    model.save_pretrained(parts)
    tokenizer.save_pretrained(parts)
    modules: Any = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    word = modules.Transformer(str(parts), max_seq_length=512)
    pooling = modules.Pooling(_DIMENSIONS, "mean")
    path = folder / "small"
    library.SentenceTransformer(modules=[word, pooling], device="cpu").save(str(path))
    return str(path)

"""A cross-encoder for sentence-transformers that is made here: random weights, the shipped tokenizer, nothing from a hub."""

import importlib
from pathlib import Path
from typing import Any

from crystal_core.embed.builtin import __file__ as _builtin


def made_cross_encoder(folder: Path, *, labels: int = 1) -> str:
    """Makes one in ``folder`` and returns its path. Needs the extra."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(7)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(Path(_builtin).parent / "model" / "tokenizer.json"),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=512,
    )
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=512,
        num_labels=labels,
    )
    path = folder / f"small-{labels}"
    transformers.BertForSequenceClassification(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)

"""Small tokenizers of every kind, as the metadata of GGUF files."""

import json
from pathlib import Path
from typing import Any

from gguf_files import write_metadata

from specdec_jax.models import Tokenizer
from specdec_jax.models.gguf_file import GGUFFile
from specdec_jax.models.gguf_tokenizer import tokenizer_from_gguf

FIXTURE = json.loads(Path(__file__).with_name("sentencepiece.json").read_text())
"""Made by make_sentencepiece.py: vocabularies as sentencepiece trains them, and the ids that it gives texts."""
SENTENCEPIECE = ("llama", "gemma", "unigram")
_USER_DEFINED = 4


def sentencepiece_metadata(name: str, **changes: Any) -> dict[str, Any]:
    """As llama.cpp's converter writes it: tokens that the makers wished for have plain spaces."""
    made = FIXTURE[name]
    pairs = zip(made["pieces"], made["types"], strict=True)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [p.replace("▁", " ") if kind == _USER_DEFINED else p for p, kind in pairs],
        "tokenizer.ggml.scores": made["scores"],
        "tokenizer.ggml.token_type": made["types"],
        "tokenizer.ggml.add_space_prefix": made["add_space_prefix"],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    } | {f"tokenizer.{key}": value for key, value in changes.items()}


def tokenizer_of(metadata: dict[str, Any], path: Path, architecture: str = "llama") -> Tokenizer:
    """Through a file, and back."""
    write_metadata(path, metadata, architecture)
    tokenizer = tokenizer_from_gguf(GGUFFile(path))
    assert tokenizer is not None
    return tokenizer

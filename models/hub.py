"""Models on the Hugging Face Hub, through huggingface_hub: its cache, its settings and its access tokens apply."""

import importlib
from pathlib import Path

from .errors import LoadError
from .huggingface import indexed_shards

BESIDE_WEIGHTS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
    "chat_template.jinja",
    "draft_vocabulary.json",
)
"""What a directory's tokenizer and generation are made of, for other programs too: some read a tokenizer from
tokenizer.model or vocab.json, which are only handed on here."""

FILES = (
    "config.json",
    *BESIDE_WEIGHTS,
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
)
"""What is fetched of a model: no other form of its weights and no code."""


def fetch(name: str) -> Path:
    """The directory of the model ``owner/name``, with its files fetched where they are not in the cache.

    Raises:
        LoadError: huggingface_hub is not installed, or the hub cannot be reached, or it does not give the model out.
    """
    missing = f"{name} is no path on this machine, so it was taken for a model on the Hugging Face Hub"
    try:
        library = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise LoadError(
            f"{missing}, and huggingface_hub, which fetches those, is not installed ({error}); run "
            "pip install 'specdec-jax[hub]', or give the path of a directory or a GGUF file"
        ) from error
    try:
        path = Path(library.snapshot_download(name, allow_patterns=list(FILES)))
        shards = [shard for shard in indexed_shards(path) if not (path / shard).exists()]  # under names of their own
        return Path(library.snapshot_download(name, allow_patterns=shards)) if shards else path
    except LoadError:
        raise
    # Failures come from its HTTP library too, under names that changed from version to version.
    except Exception as error:
        raise LoadError(
            f"{missing}, but it could not be fetched ({type(error).__name__}: {error}); check the name, the network "
            "and that you may read that model, or give the path of a directory or a GGUF file"
        ) from error

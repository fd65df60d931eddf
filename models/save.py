"""Writes a model as a Hugging Face directory, which transformers loads as well as `load` does."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specdec_jax._typing import PyTree

from .config import DecoderConfig
from .int8 import refuse_int8
from .new_directory import new_directory
from .registry import family_of_config
from .tensor_files import write_tensors
from .tokenizer import Tokenizer
from .weights import tensors_of

SHARD_BYTES = 5 * 10**9
"""Most bytes of tensors in one file."""

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def save(
    directory: str | os.PathLike[str],
    config: DecoderConfig,
    params: PyTree,
    *,
    tokenizer: Tokenizer | None = None,
    special_ids: Mapping[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Write a model that `load` gives back bit for bit, in the dtype of its parameters.

    Args:
        directory: where to; it must be empty or not exist. All files appear at once, when everything is written.
        config: the model's configuration.
        params: its parameters, in either layout.
        tokenizer: written beside it with its end tokens and its chat template, if given.
        special_ids: what config.json says about ``bos_token_id``, ``eos_token_id`` and ``pad_token_id`` of a model
            without a tokenizer; by default that there are none.
        shard_bytes: most bytes of tensors in one file; the host holds one file's tensors.
        also: writes further files into the directory that it is called with.

    Raises:
        FileExistsError: the directory is not empty, or another process is writing it.
        OSError: the disk is full, or the directory cannot be written.
        ValueError: config.json cannot say what the configuration says, or the parameters were rounded to int8.
    """
    family = family_of_config(config)
    refuse_int8(params, "a Hugging Face directory")
    # Refused before anything is written.
    raw = family.config_to_hf(config) | _tokens(tokenizer) | dict(special_ids or {})
    raw["dtype"] = str(np.dtype(jax.tree.leaves(params)[0].dtype))
    with new_directory(directory) as beside:
        _write_json(beside / "config.json", raw)
        _write_tensors(beside, tensors_of(family.spec(config), params), shard_bytes)
        if tokenizer is not None:
            write_tokenizer(beside, tokenizer)
        if also is not None:
            also(beside)


def _tokens(tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The special tokens as config.json and generation_config.json have them."""
    ends = [] if tokenizer is None else list(tokenizer.eos_ids)
    return {
        "bos_token_id": None if tokenizer is None else tokenizer.bos_id,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        # Said to be none, for transformers' own default may lie outside of the vocabulary.
        "pad_token_id": None,
    }


def write_tokenizer(directory: Path, tokenizer: Tokenizer) -> None:
    """tokenizer.json, and beside it the chat template and the special tokens."""
    # By Python, for where the disk is full the tokenizer's own way of saving raises a bare Exception.
    (directory / "tokenizer.json").write_text(tokenizer.backend.to_str(pretty=True), encoding="utf-8")
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.template_names}
    if tokenizer.chat_template is not None:
        settings["chat_template"] = tokenizer.chat_template.source
    _write_json(directory / "tokenizer_config.json", settings)
    _write_json(directory / "generation_config.json", _tokens(tokenizer))


def _write_tensors(directory: Path, tensors: Iterator[tuple[str, np.ndarray]], shard_bytes: int) -> None:
    """One file, or several and their index, each written as soon as it is full."""
    shards: list[list[str]] = []
    total, held = 0, 0
    pending: dict[str, np.ndarray] = {}

    def flush() -> None:
        # transformers wants to be told that the layout is PyTorch's.
        write_tensors(_shard(directory, len(shards)), pending, metadata={"format": "pt"})
        shards.append(list(pending))
        pending.clear()

    for name, array in tensors:
        if pending and held + array.nbytes > shard_bytes:
            flush()
            held = 0
        pending[name] = np.ascontiguousarray(array)
        held += array.nbytes
        total += array.nbytes
    flush()
    if len(shards) == 1:
        _shard(directory, 0).rename(directory / _WHOLE)
        return
    weight_map = {}
    for index, names in enumerate(shards):
        file = directory / f"model-{index + 1:05}-of-{len(shards):05}.safetensors"
        _shard(directory, index).rename(file)
        weight_map |= dict.fromkeys(names, file.name)
    _write_json(directory / _INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _shard(directory: Path, index: int) -> Path:
    return directory / f"shard-{index}.safetensors"


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

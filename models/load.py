"""From a path or a name to a model that is ready to generate."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, SingleDeviceSharding
from jax.typing import DTypeLike

from specdec_jax._typing import PyTree
from specdec_jax.lm import LanguageModel

from .checkpoint import SETTINGS, checkpoint_settings, load_checkpoint
from .config import DecoderConfig
from .errors import LoadError
from .family import Family
from .gguf_file import GGUFFile
from .gguf_tokenizer import tokenizer_from_gguf
from .huggingface import read_json, tensors_from_directory, tokenizer_from_directory
from .int8 import Weights, checked
from .language_model import checked_dtype, model_from_config, param_shapes, param_shardings
from .leaves import Spec
from .names import resolve as place_of
from .registry import GGUF_ARCHITECTURES, HF_ARCHITECTURES, HF_MODEL_TYPES, family_of
from .sizes import check_numbers, check_sizes
from .stack import Layout, resolve
from .tokenizer import Tokenizer
from .weights import Tensors, assemble, has_own_head


class Loaded(NamedTuple):
    """What `load` returns."""

    model: LanguageModel
    params: PyTree
    """Nested dicts of arrays, and of `Int8Weight`s where these were asked for."""
    tokenizer: Tokenizer | None
    """None for a directory without tokenizer.json, or a GGUF file without a vocabulary."""
    config: DecoderConfig
    variant: Callable[..., LanguageModel]
    """``variant(hidden_layers=..., depth=...)``: the same model for the same params, asked for other things; see
    `model_from_config`."""
    name: str
    """The name it was asked for by, or the last part of the path."""


def load(
    path_or_name: str | os.PathLike[str],
    *,
    dtype: DTypeLike | None = None,
    layers: Layout = "auto",
    hidden_layers: tuple[int, ...] | None = None,
    mesh: Mesh | None = None,
    whole: bool = False,
    weights: Weights = "float",
    check: Callable[[Loaded], None] | None = None,
) -> Loaded:
    """Load a model with its weights and its tokenizer.

    Args:
        path_or_name: a Hugging Face directory (config.json, safetensors, tokenizer.json), a .gguf file, what
            `save_checkpoint` wrote, one of `NAMES`, or the ``owner/name`` of a model on the Hugging Face Hub, see
            `names.resolve`.
        dtype: of parameters and cache, float32 or bfloat16; by default float32 on CPU, bfloat16 on accelerators.
        layers: how layers are held and run, see `stack.Layout`.
        hidden_layers: layers after which ``apply`` gives out its states, see `model_from_config`.
        mesh: devices to put the parameters on, straight into their shards or ``whole``, see `param_shardings`.
        weights: ``int8`` holds the matrices rounded, see `Int8Weight`: a smaller and faster drafter, or another target.
        check: called with all but the params, before these are read; what it raises ends the loading.

    Raises:
        LoadError: before anything is compiled, for a missing, truncated or foreign file, an architecture or a
            quantisation that is not supported, or tensors that do not fit the configuration.
    """
    dtype, weights = checked_dtype(dtype), checked(weights)
    path, name = place_of(path_or_name)

    def place(config: DecoderConfig, *, layers: Layout) -> PyTree:
        if mesh is not None:
            return param_shardings(config, mesh, layers=layers, whole=whole, weights=weights)
        if weights == "float":
            return None
        here = SingleDeviceSharding(jax.local_devices()[0])
        return jax.tree.map(lambda _: here, param_shapes(config, layers=layers, weights=weights))

    if (path / SETTINGS).exists():
        loaded, read = _checkpoint(path, name, dtype, layers, hidden_layers, place)
    else:
        loaded, read = _file(path, name, dtype, layers, hidden_layers, place)
    if check is not None:
        check(loaded)
    return loaded._replace(params=read())


def _file(
    path: Path,
    name: str,
    dtype: jnp.dtype,
    layers: Layout,
    hidden_layers: tuple[int, ...] | None,
    place: Callable[..., PyTree],
) -> tuple[Loaded, Callable[[], PyTree]]:
    """A model without its params, and what reads these."""
    contents = _directory(path) if path.is_dir() else _gguf(path)
    config = contents.config
    tokens = _tokens(contents.tokenizer, config, path)
    variant = partial(model_from_config, config, dtype=dtype, layers=layers, **tokens)
    stacked = resolve(layers) == "stacked"
    shardings = place(config, layers=layers)
    read = partial(assemble, contents.spec, contents.tensors, stacked=stacked, dtype=dtype, shardings=shardings)
    return Loaded(variant(hidden_layers=hidden_layers), None, contents.tokenizer, config, variant, name), read


def _checkpoint(
    path: Path,
    name: str,
    dtype: jnp.dtype,
    layers: Layout,
    hidden_layers: tuple[int, ...] | None,
    place: Callable[..., PyTree],
) -> tuple[Loaded, Callable[[], PyTree]]:
    tokenizer = tokenizer_from_directory(path, {})
    config, written, _ = checkpoint_settings(path)
    if layers not in ("auto", written):
        raise LoadError(f"{path} holds its layers {written}; expected layers to be 'auto' or {written!r}")
    tokens = _tokens(tokenizer, config, path)
    variant = partial(model_from_config, config, dtype=dtype, layers=written, **tokens)
    model = variant(hidden_layers=hidden_layers)
    return (
        Loaded(model, None, tokenizer, config, variant, name),
        lambda: load_checkpoint(path, dtype=dtype, shardings=place).params,
    )


def _tokens(tokenizer: Tokenizer | None, config: DecoderConfig, path: Path) -> dict[str, Any]:
    """Which of the logits are no tokens, for `model_from_config`; nothing where nobody says.

    Added tokens may lie past the logits (Gemma 3's text models have one): they cannot come out, and are no prompt.
    """
    if tokenizer is None:
        return {}
    added = tokenizer.backend.get_vocab_size() - tokenizer.backend.get_vocab_size(with_added_tokens=False)
    if not 0 < tokenizer.vocab_size <= config.vocab_size + added:
        raise LoadError(
            f"the tokenizer of {path} has {tokenizer.vocab_size} tokens, but its logits are {config.vocab_size} wide; "
            "expected one to that many, so check that both belong to the same model"
        )
    _keep_ends(tokenizer, config, path)
    holes = tuple(hole for hole in tokenizer.holes() if hole < config.vocab_size)
    return {"num_tokens": min(tokenizer.vocab_size, config.vocab_size), "holes": holes}


def _keep_ends(tokenizer: Tokenizer, config: DecoderConfig, path: Path) -> None:
    """Leave out end tokens that never come out, past the logits or in their padding. Refuse those past both."""
    foreign = [end for end in tokenizer.eos_ids if end >= max(config.vocab_size, tokenizer.vocab_size)]
    if foreign:
        raise LoadError(
            f"{path} names {foreign[0]} as an end token, but its logits are {config.vocab_size} wide and its tokenizer "
            f"has {tokenizer.vocab_size} tokens; expected one of these, so correct eos_token_id in config.json and "
            "generation_config.json"
        )
    drawn = min(config.vocab_size, tokenizer.vocab_size)
    tokenizer.eos_ids = tuple(end for end in tokenizer.eos_ids if end < drawn)


class _Contents(NamedTuple):
    """What a file or directory holds, before its tensors are read."""

    config: DecoderConfig
    spec: Spec
    tensors: Tensors
    tokenizer: Tokenizer | None


def _gguf(path: Path) -> _Contents:
    file = GGUFFile(path)
    architecture = file.get("general.architecture", kind=str)
    family = family_of(architecture, GGUF_ARCHITECTURES, path)
    check_sizes(file.under(f"{architecture}."), map(file.shape, file.tensors), path)
    with _blamed_on(path):
        config = family.config_from_gguf(file)
        check_numbers(config, path)
        tokenizer = tokenizer_from_gguf(file)
    spec = (family.spec_of_gguf or family.spec)(config)
    return _Contents(config, spec, family.tensors_from_gguf(file, config), tokenizer)


def _directory(path: Path) -> _Contents:
    if not (path / "config.json").exists():
        raise LoadError(f"{path} has no config.json; expected a Hugging Face directory or the path of a GGUF file")
    raw = read_json(path / "config.json")
    with _blamed_on(path):
        family = _family(raw, path)
        tensors = tensors_from_directory(path)
        check_sizes(raw, tensors.shapes.values(), path)
        config = family.config_from_hf(raw)
        check_numbers(config, path)
        tokenizer = tokenizer_from_directory(path, raw)
    spec, tensors = family.spec(config), family.tensors_from_hf(tensors)
    if config.tied_head and has_own_head(spec, tensors):
        config = dataclasses.replace(config, tied_head=False)  # pyright: ignore[reportArgumentType]
        spec = family.spec(config)
    return _Contents(config, spec, tensors, tokenizer)


def config_from_json(path: str | os.PathLike[str]) -> DecoderConfig:
    """The configuration that a config.json describes, without weights.

    Raises:
        LoadError: it cannot be read, or is of an architecture that is not supported.
    """
    path = Path(path)
    raw = read_json(path)
    with _blamed_on(path):
        family = _family(raw, path)
        config = family.config_from_hf(raw)
        check_numbers(config, path)
    return config


def _family(raw: Mapping[str, Any], path: Path) -> Family:
    names = raw.get("architectures")
    if names:
        if not isinstance(names, list) or not isinstance(names[0], str):
            raise LoadError(f"architectures of {path} is {names!r}; expected a list of names, so correct it")
        return family_of(names[0], HF_ARCHITECTURES, path)
    return family_of(raw.get("model_type"), HF_MODEL_TYPES, path)


@contextlib.contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """A configuration that makes no sense is a fault of its file, and so is a value of another type than expected."""
    try:
        yield
    except LoadError:
        raise
    except ValueError as error:
        raise LoadError(f"the configuration of {path} makes no sense: {error}") from error
    except (TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise LoadError(
            f"the configuration of {path} makes no sense ({type(error).__name__}: {error}); expected values of the "
            "types that its makers' own library writes, so download or convert it again"
        ) from error

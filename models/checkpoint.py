"""Checkpoints of this project: parameters as orbax writes them, with the configuration as JSON beside them."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Sharding
from jax.typing import DTypeLike

from specdec_jax._typing import PyTree

from .config import DecoderConfig
from .errors import LoadError
from .huggingface import read_json
from .language_model import init_params
from .new_directory import new_directory
from .registry import CONFIGS, family_of_config
from .save import write_tokenizer
from .sizes import check_numbers
from .stack import Layout, resolve
from .tokenizer import Tokenizer
from .weights import is_stacked

SETTINGS = "specdec.json"
"""By this file a directory is known as such a checkpoint."""

_PARAMS = "params"


class Checkpoint(NamedTuple):
    """What `load_checkpoint` returns."""

    config: DecoderConfig
    params: PyTree
    layers: Layout
    """How its layers are held."""


def save_checkpoint(
    directory: str | os.PathLike[str], config: DecoderConfig, params: PyTree, *, tokenizer: Tokenizer | None = None
) -> None:
    """Write parameters as they are, in their layout, dtype and shards, and the tokenizer beside them if one is given.

    All of it appears at once, when everything is written.

    Raises:
        FileExistsError: the directory is not empty, or another process is writing it.
    """
    family_of_config(config)
    assert dataclasses.is_dataclass(config)
    settings = {
        "config": type(config).__name__,
        "fields": dataclasses.asdict(config),
        "layers": "stacked" if is_stacked(params) else "unrolled",
        "dtype": str(jax.tree.leaves(params)[0].dtype),
    }
    with new_directory(directory) as beside:
        import orbax.checkpoint as ocp  # takes seconds, which nobody else should wait for

        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(beside / _PARAMS, params)
        if tokenizer is not None:
            write_tokenizer(beside, tokenizer)
        (beside / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_checkpoint(
    directory: str | os.PathLike[str],
    *,
    dtype: DTypeLike | None = None,
    shardings: PyTree | Sharding | Callable[..., PyTree] | None = None,
) -> Checkpoint:
    """Read a checkpoint, each array straight into its shards.

    Args:
        directory: what `save_checkpoint` wrote.
        dtype: of the parameters; by default the one they were written in.
        shardings: one for all parameters, or a tree of them in the shape of the parameters, or a function of the
            configuration and ``layers`` that gives one; by default each array comes whole onto JAX's default device.

    Raises:
        LoadError: it is no checkpoint of this project, or a damaged one.
        ValueError: the shardings do not fit the parameters.
    """
    directory = Path(directory).resolve()
    config, layers, written = _settings(directory)
    _check_layers(directory, config, layers)
    wanted = jnp.dtype(written if dtype is None else dtype)
    abstract = jax.eval_shape(lambda: init_params(config, jax.random.key(0), dtype=wanted, layers=layers))
    if callable(shardings):
        shardings = shardings(config, layers=layers)
    if shardings is None:
        shardings = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    if isinstance(shardings, Sharding):
        one = shardings
        shardings = jax.tree.map(lambda _: one, abstract)

    def shard(leaf: jax.ShapeDtypeStruct, sharding: Sharding) -> jax.ShapeDtypeStruct:
        sharding.shard_shape(leaf.shape)  # a sharding that does not fit is no fault of the file
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    target = jax.tree.map(shard, abstract, shardings)
    import orbax.checkpoint as ocp

    try:
        with ocp.StandardCheckpointer() as checkpointer:
            params = checkpointer.restore(directory / _PARAMS, target)
    except Exception as error:  # a damaged file makes the store behind orbax raise just that
        raise LoadError(f"cannot read the parameters of {directory} ({error}); write the checkpoint again") from error
    return Checkpoint(config, params, layers)


def _check_layers(directory: Path, config: DecoderConfig, layers: Layout) -> None:
    """Held against what is stored before modules are made, which takes long for a million layers that are not there."""
    import orbax.checkpoint as ocp

    try:
        with ocp.StandardCheckpointer() as checkpointer:
            stored = checkpointer.metadata(directory / _PARAMS).item_metadata["layers"]
        found = len(stored) if layers == "unrolled" else jax.tree.leaves(stored)[0].shape[0]
    except Exception as error:  # what is damaged makes orbax and the store behind it raise just that
        raise LoadError(
            f"cannot read which parameters {directory} holds ({error}); write the checkpoint again"
        ) from error
    if found != config.num_layers:
        raise LoadError(
            f"{directory / SETTINGS} says num_layers {config.num_layers}, but {found} layers are stored; write the "
            "checkpoint again"
        )


def _settings(directory: Path) -> tuple[DecoderConfig, Layout, str]:
    path = directory / SETTINGS
    classes = {kind.__name__: kind for kind in CONFIGS}
    try:
        settings = read_json(path)
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in settings["fields"].items()}
        config = classes[settings["config"]](**fields)
        check_numbers(config, path)
        dtype = jnp.dtype(settings["dtype"])
        if dtype not in (jnp.float32, jnp.bfloat16):
            raise ValueError(f"its dtype is {dtype}, not float32 or bfloat16")
        return config, resolve(settings["layers"]), str(dtype)
    except LoadError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(
            f"cannot read {path} ({type(error).__name__}: {error}); expected the settings that save_checkpoint writes, "
            f"for one of {', '.join(classes)}"
        ) from error

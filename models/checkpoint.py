"""Checkpoints of this project: parameters as orbax writes them, with the configuration as JSON beside them."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Sharding
from jax.tree_util import KeyPath, tree_leaves_with_path, tree_map_with_path
from jax.typing import DTypeLike

from specdec_jax._typing import Array, PyTree

from .config import DecoderConfig
from .errors import LoadError, blamed
from .huggingface import read_json
from .int8 import Int8Weight, refuse_int8
from .language_model import param_shapes
from .leaves import Shape
from .new_directory import new_directory
from .registry import CONFIGS, family_of_config
from .save import write_tokenizer
from .sizes import check_numbers
from .stack import Layout, resolve
from .stored import CHUNK_BYTES, chunk_of, open_arrays, read_array, read_int8
from .tokenizer import Tokenizer
from .weights import check_tensors, is_stacked

SETTINGS = "specdec.json"
"""By this file a directory is known as such a checkpoint."""

_PARAMS = "params"
_ADVICE = "write the checkpoint again"


class Checkpoint(NamedTuple):
    """What `load_checkpoint` returns."""

    config: DecoderConfig
    params: PyTree
    layers: Layout
    """How its layers are held."""


def save_checkpoint(
    directory: str | os.PathLike[str],
    config: DecoderConfig,
    params: PyTree,
    *,
    tokenizer: Tokenizer | None = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Write parameters as they are, in their layout, dtype and shards, and the tokenizer beside them if one is given.

    All of it appears at once, when everything is written. ``also`` writes further files into the directory that it is
    called with.

    Raises:
        FileExistsError: the directory is not empty, or another process is writing it.
        ValueError: the parameters were rounded to int8.
    """
    family_of_config(config)
    refuse_int8(params, "a checkpoint")
    assert dataclasses.is_dataclass(config)
    settings = {
        "config": type(config).__name__,
        "fields": dataclasses.asdict(config),
        "layers": "stacked" if is_stacked(params) else "unrolled",
        "dtype": str(jax.tree.leaves(params)[0].dtype),
    }
    with new_directory(directory) as beside:
        import orbax.checkpoint as ocp  # takes seconds, which nobody else should wait for

        chunks = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=CHUNK_BYTES), params)
        # Not the asynchronous one, whose threads go on writing where this fails.
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
            checkpointer.save(beside / _PARAMS, args=ocp.args.StandardSave(params, chunks))
        if tokenizer is not None:
            write_tokenizer(beside, tokenizer)
        if also is not None:
            also(beside)
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
            What has the places of an `Int8Weight` is rounded to one.

    Raises:
        LoadError: it is no checkpoint of this project, or a damaged one.
        ValueError: the shardings do not fit the parameters.
    """
    directory = Path(directory).resolve()
    config, layers, written = checkpoint_settings(directory)
    with blamed(f"cannot read which parameters {directory} holds", _ADVICE):
        arrays = open_arrays(directory / _PARAMS)
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    _check_layers(directory, config, layers, shapes)
    abstract = param_shapes(config, layers=layers)
    if callable(shardings):
        shardings = shardings(config, layers=layers)
    if shardings is None:
        shardings = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    if isinstance(shardings, Sharding):
        one = shardings
        shardings = jax.tree.map(lambda _: one, abstract)
    check_tensors(directory, shapes, {_name(path): leaf.shape for path, leaf in tree_leaves_with_path(abstract)})
    _check_chunks(directory, {name: chunk_of(array) for name, array in arrays.items()}, shapes)

    def fits(leaf: jax.ShapeDtypeStruct, where: Sharding | Int8Weight) -> None:
        (where.values if isinstance(where, Int8Weight) else where).shard_shape(leaf.shape)

    jax.tree.map(fits, abstract, shardings)  # before any is read

    wanted = jnp.dtype(written if dtype is None else dtype)

    def read(path: KeyPath, where: Sharding | Int8Weight) -> Array | Int8Weight:
        reading = read_int8 if isinstance(where, Int8Weight) else read_array
        with blamed(f"cannot read {_name(path)} of {directory}", _ADVICE):
            return reading(arrays[_name(path)], wanted, where)

    params = tree_map_with_path(read, shardings, is_leaf=lambda node: isinstance(node, Int8Weight))
    return Checkpoint(config, params, layers)


def _name(path: KeyPath) -> str:
    """As orbax names the parameter."""
    return ".".join(str(key.key) for key in path)  # pyright: ignore[reportAttributeAccessIssue]


def _check_layers(
    directory: Path, config: DecoderConfig, layers: Layout, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Held against what is stored before modules are made, which takes long for a million layers that are not there."""
    inside = {name: shape for name, shape in shapes.items() if name.startswith("layers.")}
    if layers == "unrolled":
        found = len({name.split(".")[1] for name in inside})
    else:
        found = next((shape[0] for shape in inside.values() if shape), 0)
    if found != config.num_layers:
        raise LoadError(
            f"{directory / SETTINGS} says num_layers {config.num_layers}, but {found} layers are stored; write the "
            "checkpoint again"
        )


def _check_chunks(directory: Path, chunks: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> None:
    """A chunk is read as a whole: one larger than its array would take memory that no parameter needs."""
    for name, chunk in chunks.items():
        if any(size > max(length, 1) for size, length in zip(chunk, shapes[name], strict=True)):
            raise LoadError(
                f"{name} of {directory} has the shape {shapes[name]}, but is stored in chunks of {chunk}; expected "
                f"none larger, so {_ADVICE}"
            )


def checkpoint_settings(directory: Path) -> tuple[DecoderConfig, Layout, str]:
    """The configuration, how layers are held, and the dtype, or a LoadError."""
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

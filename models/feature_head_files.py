"""A feature head on disk: drafter.json says what it is, drafter.safetensors holds its parameters."""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from specdec_jax._typing import Array, PyTree
from specdec_jax.lm import FeatureModel

from .errors import LoadError
from .feature_head import FeatureHead, FeatureHeadConfig, draft_places, feature_model
from .huggingface import open_safetensors, read_json
from .int8 import Int8Weight, Weights, checked, matrices, refuse_int8
from .language_model import dtype_of
from .llama import LlamaConfig
from .load import Loaded
from .sizes import check_numbers
from .tensor_files import write_tensors
from .weights import Tensors, check_tensors, int8_rows

SETTINGS = "drafter.json"
"""By this file a directory is known as a feature head."""

Storage = Literal["int8", "bfloat16", "float32"]

_WEIGHTS = "drafter.safetensors"
_KIND = "feature_head"
_SCALE = ".scale"
_IDS = "draft_ids"
_SHIPPED = Path(__file__).parent / "heads"


class LoadedHead(NamedTuple):
    """What `load_head` returns."""

    config: FeatureHeadConfig
    params: PyTree
    draft_ids: np.ndarray
    """The tokens that it can guess, ascending."""
    record: dict[str, Any]
    """What its makers wrote down about it."""
    name: str


def save_head(
    directory: str | os.PathLike[str],
    config: FeatureHeadConfig,
    params: PyTree,
    draft_ids: np.ndarray,
    *,
    storage: Storage = "bfloat16",
    record: Mapping[str, Any] | None = None,
) -> None:
    """Write a head into a directory that exists or does not, over an older one if there is one.

    Args:
        directory: where to.
        config, params, draft_ids: the head.
        storage: how matrices are stored; in int8 each row has a scale of its own. Norms stay in float32.
        record: anything to keep with it, as JSON.

    Raises:
        OSError: the disk is full, or the directory cannot be written. An older head stays as it was.
        ValueError: the parameters were rounded to int8.
    """
    refuse_int8(params, "writing a feature head")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, np.ndarray] = {_IDS: np.asarray(draft_ids, np.int32)}
    for name, leaf in _by_name(params).items():
        array = np.asarray(leaf, np.float32)
        if array.ndim < 2 or storage == "float32":
            tensors[name] = array
        elif storage == "bfloat16":
            tensors[name] = array.astype(jnp.bfloat16)
        else:
            tensors[name], tensors[name + _SCALE] = int8_rows(array)
    settings = {
        "kind": _KIND,
        "config": {**dataclasses.asdict(config), "layer": dataclasses.asdict(config.layer)},
        "storage": storage,
        "record": dict(record or {}),
    }
    text = json.dumps(settings, indent=2) + "\n"
    # Written beside the old files and then put in their place; the settings last, so that they speak of what is there.
    parts = {name: directory / f"{name}.part" for name in (_WEIGHTS, SETTINGS)}
    try:
        write_tensors(parts[_WEIGHTS], tensors)
        parts[SETTINGS].write_text(text, encoding="utf-8")
        for name, part in parts.items():
            part.replace(directory / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def find_head(path_or_name: str | os.PathLike[str]) -> Path | None:
    """The directory of a feature head: a path, or the name of one that comes with the package; None for others."""
    path = Path(path_or_name)
    for place in (path, _SHIPPED / path.name):
        if (place / SETTINGS).is_file() and (place == path or str(path_or_name) == path.name):
            return place
    return None


def heads() -> list[str]:
    """The names of the feature heads that come with the package."""
    return sorted(place.parent.name for place in _SHIPPED.glob(f"*/{SETTINGS}"))


def load_head(
    directory: str | os.PathLike[str], *, dtype: DTypeLike = jnp.float32, weights: Weights = "float"
) -> LoadedHead:
    """Read what `save_head` wrote, into ``dtype``, with its matrices in int8 if ``weights`` says so.

    Raises:
        LoadError: it is no feature head, or a damaged one.
    """
    directory = Path(directory)
    config, record = _settings(directory / SETTINGS)
    tensors = _tensors(directory / _WEIGHTS)
    if config.layer.num_layers > len(tensors.shapes):  # before so many are made
        raise LoadError(
            f"{directory / SETTINGS} says {config.layer.num_layers} layers, but {_WEIGHTS} has only "
            f"{len(tensors.shapes)} tensors; write it again"
        )
    module = _abstract(config, jnp.dtype(dtype))
    abstract, in_rows = _by_name(nnx.to_pure_dict(nnx.state(module))), _by_name(matrices(module))
    rounding = checked(weights) == "int8"
    scales = [name for name in tensors.shapes if name.endswith(_SCALE)]
    expected = {name: leaf.shape for name, leaf in abstract.items()} | {_IDS: (config.draft_vocab_size,)}
    check_tensors(tensors.path, tensors.shapes, expected, scales)

    def value(name: str) -> Array | Int8Weight:
        array, scale = _whole(tensors, name), None
        if array.dtype == np.int8:
            scale = _whole(tensors, name + _SCALE) if name + _SCALE in scales else np.zeros(0, np.float32)
            if scale.shape != array.shape[:-1]:
                raise LoadError(
                    f"{directory / _WEIGHTS} has {name} in int8 without a scale for each row; write it again"
                )
            scale = scale.astype(np.float32)
        if not np.isfinite(array.astype(np.float32) if scale is None else 128 * scale).all():
            raise LoadError(f"{name} of {directory / _WEIGHTS} is not finite; expected numbers, so write it again")
        if rounding and in_rows[name]:
            return Int8Weight(*map(jnp.asarray, int8_rows(array) if scale is None else (array, scale)))
        return jnp.asarray(array if scale is None else array.astype(np.float32) * scale[..., None], dtype)

    ids = _whole(tensors, _IDS)
    if ids.dtype != np.int32 or ids[0] < 0 or ids[-1] >= config.layer.vocab_size or (np.diff(ids) <= 0).any():
        raise LoadError(
            f"{_IDS} of {directory / _WEIGHTS} are no ascending token ids below {config.layer.vocab_size}; write it "
            "again"
        )
    params = _nested({name: value(name) for name in abstract})
    return LoadedHead(config, params, ids, record, directory.resolve().name)


def head_for(head: LoadedHead, target: Loaded) -> tuple[FeatureModel, PyTree]:
    """The head as a drafter of ``target`` reads it, with the target's own embedding.

    Build the target with ``target.variant(hidden_layers=head.config.hidden_layers)``.

    Raises:
        ValueError: it was made for a target of another shape.
    """
    config = head.config
    embedding: Array | Int8Weight = target.params["embedding"]["weight"]
    wanted = {
        "vocab_size": (config.layer.vocab_size, target.config.vocab_size),
        "width": (config.hidden_width, embedding.shape[1]),
    }
    for name, (theirs, ours) in wanted.items():
        if theirs != ours:
            raise ValueError(
                f"the feature head {head.name} was made for a target of {name} {theirs}, but {target.name} has {ours}; "
                "expected the target that it was trained on"
            )
    deepest = max(config.hidden_layers)
    if deepest >= target.config.num_layers:
        raise ValueError(
            f"the feature head {head.name} reads layer {deepest}, but {target.name} has {target.config.num_layers} "
            "layers; expected the target that it was trained on"
        )
    dtype = dtype_of(head.params)
    params = {
        "head": head.params,
        "embedding": embedding,
        "draft_place": draft_places(head.draft_ids, config.layer.vocab_size),
    }
    return feature_model(config, dtype, target.config.max_positions), params


def _abstract(config: FeatureHeadConfig, dtype: jnp.dtype) -> FeatureHead:
    return nnx.eval_shape(lambda: FeatureHead(config, dtype=dtype, rngs=nnx.Rngs(0)))


def _by_name(params: PyTree) -> dict[str, Any]:
    """Leaves by the way to them, with dots between its parts."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(str(getattr(key, "key", key)) for key in path): leaf for path, leaf in leaves}


def _nested(by_name: Mapping[str, Array | Int8Weight]) -> PyTree:
    tree: dict[Any, Any] = {}
    for name, leaf in by_name.items():
        *path, last = (int(part) if part.isdigit() else part for part in name.split("."))
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = leaf
    return tree


def _settings(path: Path) -> tuple[FeatureHeadConfig, dict[str, Any]]:
    settings = read_json(path)
    try:
        if settings["kind"] != _KIND:
            raise ValueError(f"its kind is {settings['kind']!r}")
        fields = settings["config"]
        layer = LlamaConfig(**{key: tuple(v) if isinstance(v, list) else v for key, v in fields["layer"].items()})
        config = FeatureHeadConfig(**{**fields, "layer": layer, "hidden_layers": tuple(fields["hidden_layers"])})
        check_numbers(layer, path)
        check_numbers(config, path)
        return config, dict(settings["record"])
    except LoadError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(
            f"cannot read {path} ({type(error).__name__}: {error}); expected the settings that save_head writes"
        ) from error


def _tensors(path: Path) -> Tensors:
    with open_safetensors(path) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  (no mapping)

    def blocks(name: str) -> Iterator[np.ndarray]:
        with open_safetensors(path) as file:
            yield file.get_tensor(name)

    return Tensors(str(path), shapes, blocks)


def _whole(tensors: Tensors, name: str) -> np.ndarray:
    (array,) = tensors.blocks(name)
    return array

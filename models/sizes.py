"""Sizes that a configuration claims, held against the tensors that are there.

A billion layers or a head of a billion numbers would fill the memory long before a missing tensor could be named, so
this is looked at before a configuration is believed.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, NoReturn, get_args, get_origin

from .errors import LoadError

# By how the key ends, in config.json and in the metadata of GGUF.
_LAYERS = ("num_hidden_layers", "n_layer", "block_count")
_WIDTHS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "n_embd",
    "n_head",
    "n_inner",
    "embedding_length",
    "feed_forward_length",
    "head_count",
    "head_count_kv",
    "key_length",
    "value_length",
    "rope.dimension_count",
)
_POSITIONS = ("max_position_embeddings", "n_positions", "context_length", "sliding_window")
_HARMLESS = 1 << 20  # a width up to here takes no memory worth mentioning, and the check of shapes says more
_MOST_POSITIONS = 2**31 - 1


def check_sizes(settings: Mapping[str, Any], shapes: Iterable[tuple[int, ...]], path: object) -> None:
    """Raise a LoadError for more layers than tensors, a huge width that no tensor has, or positions past 32 bits."""
    shapes = [shape for shape in shapes if 0 not in shape]  # others take no bytes, and may claim any size
    widest = max((size for shape in shapes for size in shape), default=0)
    for key, value in settings.items():
        if isinstance(value, Mapping):  # the text part of a model that reads more than text
            check_sizes(value, shapes, path)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if key.endswith(_LAYERS):
            if value > len(shapes):
                _refuse(key, value, f"but it has only {len(shapes)} tensors", path)
        elif key.endswith(_WIDTHS):
            if value > max(widest, _HARMLESS):
                _refuse(key, value, f"but no side of its tensors is longer than {widest}", path)
        elif key.endswith(_POSITIONS) and value > _MOST_POSITIONS:
            _refuse(key, value, f"but positions go up to {_MOST_POSITIONS}", path)


def check_numbers(config: object, path: object) -> None:
    """Raise a LoadError for a field of a configuration, once read, that is no number where it has to be one."""
    for field in dataclasses.fields(config):  # pyright: ignore[reportArgumentType]
        value = getattr(config, field.name)
        kinds = get_args(field.type) if get_origin(field.type) is UnionType else (field.type,)
        wanted = (int, float) if float in kinds else (int,) if int in kinds else None
        if value is None and type(None) in kinds:
            continue
        if wanted is not None and (type(value) not in wanted or not 0 <= value < math.inf):
            raise LoadError(
                f"the configuration of {path} makes no sense: {field.name} is {value!r}; expected a number of the kind "
                f"{wanted[-1].__name__}, so download or convert it again"
            )


def _refuse(key: str, value: int, why: str, path: object) -> NoReturn:
    raise LoadError(
        f"{key} of {path} is {value}, {why}; check that the configuration and the weights belong to the same model"
    )

"""A small model made of some of a larger one's layers."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import PyTree
from specdec_jax.models import Loaded
from specdec_jax.models.config import DecoderConfig


def evenly_spaced(count: int, of: int) -> tuple[int, ...]:
    """``count`` layers from the first to the last; of one, the first."""
    if not 0 < count <= of:
        raise ValueError(f"a student of {count} layers of {of}; expected 1 to {of}")
    return tuple(round(x) for x in np.linspace(0, of - 1, count)) if count > 1 else (0,)


def check_layers(layers: Sequence[int], of: int) -> None:
    """Raise a ValueError unless they are some of ``of`` layers."""
    if not layers or any(not 0 <= layer < of for layer in layers):
        raise ValueError(f"the layers are {list(layers)}; expected some of 0 to {of - 1}")


def from_layers(source: Loaded, layers: Sequence[int]) -> tuple[DecoderConfig, PyTree]:
    """The configuration and the parameters of a model with these layers of ``source``, its embedding, norm and head.

    Its layers are held as the source's are.

    Raises:
        ValueError: a layer that is not there.
    """
    config = source.config
    check_layers(layers, config.num_layers)
    changes: dict[str, object] = {"num_layers": len(layers)}
    windowed = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}.get("windowed")  # pyright: ignore[reportArgumentType]
    if windowed:  # by layer, in families that have both kinds
        changes["windowed"] = tuple(windowed[layer] for layer in layers)
        if not any(windowed[layer] for layer in layers):
            changes |= {"windowed": (), "sliding_window": None}
    held = source.params["layers"]
    if 0 in held:
        picked = {new: held[old] for new, old in enumerate(layers)}
    else:
        picked = jax.tree.map(lambda leaf: leaf[jnp.asarray(layers)], held)
    return dataclasses.replace(config, **changes), {**source.params, "layers": picked}  # pyright: ignore[reportArgumentType]

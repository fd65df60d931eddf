"""Rotary position embedding, in the half-split form: the pair of coordinate i is coordinate i + H / 2."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import Array, Float, Float32, Int


def frequencies(head_size: int, theta: float, factors: tuple[float, ...] | None = None) -> np.ndarray:
    """Radians a position for each of the H / 2 pairs; ``factors`` divide them, one a pair."""
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    plain = 1 / np.float32(theta) ** exponents
    return plain if factors is None else plain / np.asarray(factors, np.float32)


def llama3_factors(
    head_size: int,
    theta: float,
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_positions: int,
) -> tuple[float, ...]:
    """What Llama 3 divides its frequencies by: 1 for fast pairs, ``factor`` for slow ones, a smooth bridge between.

    Fast means more than ``high_freq_factor`` turns within the original context, slow fewer than ``low_freq_factor``.
    """
    turns = original_max_positions * frequencies(head_size, theta).astype(np.float64) / (2 * math.pi)
    sharpness = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return tuple((1 / (sharpness + (1 - sharpness) / factor)).tolist())


class Rope(NamedTuple):
    """How fast each pair of coordinates turns."""

    size: int
    """Coordinates that turn, the first ones of a head: all of them, for most."""
    theta: float
    factors: tuple[float, ...] | None = None
    """What each of the ``size / 2`` frequencies is divided by."""

    def tables(self, positions: Int[Array, "B T"]) -> tuple[Float32[Array, "B T half"], Float32[Array, "B T half"]]:
        """Cosines and sines, the same for all layers of a kind."""
        radians = jnp.asarray(frequencies(self.size, self.theta, self.factors), jnp.float32)
        angles = positions.astype(jnp.float32)[:, :, None] * radians[None, None]
        return jnp.cos(angles), jnp.sin(angles)


def rotate(
    x: Float[Array, "B T G R H"], cos: Float32[Array, "B T half"], sin: Float32[Array, "B T half"]
) -> Float[Array, "B T G R H"]:
    """Turn each pair of coordinates by its angle; those past the ``2 * half`` first stay as they are."""
    turned, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    cos, sin = cos[:, :, None, None], sin[:, :, None, None]
    left, right = jnp.split(turned.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)
    return jnp.concatenate([turned, rest], axis=-1) if rest.shape[-1] else turned

"""Params of small models."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax import models
from specdec_jax._typing import PyTree
from specdec_jax.models.config import DecoderConfig
from specdec_jax.models.stack import Layout


@cache
def fresh_params(config: DecoderConfig, layers: Layout = "auto") -> PyTree:
    """Like `init_params` in float32, from NumPy's random numbers, for which nothing is compiled."""
    shapes = jax.eval_shape(lambda: models.init_params(config, jax.random.key(0), dtype=jnp.float32, layers=layers))
    rng = np.random.default_rng(0)

    def fresh(path, leaf):
        name = jax.tree_util.keystr(path)
        if "norm" in name or "bias" in name:
            return jnp.full(leaf.shape, 1.0 if "weight" in name else 0.0, jnp.float32)
        return jnp.asarray(0.02 * rng.normal(size=leaf.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(fresh, shapes)

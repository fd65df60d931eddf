"""Drafters that are never right: what speculation costs at its worst."""

import jax
import jax.numpy as jnp

from .._typing import Array, PRNGKeyArray, PyTree


def useless(params: PyTree, key: PRNGKeyArray) -> PyTree:
    """Random parameters of the same shapes, means and spreads; rounded weights too. Other integers stay. The key is
    consumed."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, max(len(leaves), 1))
    return jax.tree.unflatten(tree, [_like(leaf, one) for leaf, one in zip(leaves, keys, strict=False)])


def _like(leaf: Array, key: PRNGKeyArray) -> Array:
    if leaf.dtype == jnp.int8:  # of a rounded weight
        return jnp.clip(jnp.rint(_like(leaf.astype(jnp.float32), key)), -127, 127).astype(jnp.int8)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return leaf.mean() + leaf.std() * jax.random.normal(key, leaf.shape, leaf.dtype)

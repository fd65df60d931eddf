"""Short names for large things, equal exactly where these are."""

import hashlib
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from .._typing import Array, PyTree, UInt32


def fingerprint(params: PyTree) -> str:
    """Of parameters, in hexadecimal: their structure, shapes, dtypes and bits.

    A weighted sum of the bits of each array in integers that wrap around: it does not depend on how an array is
    sharded, and no array is fetched.
    """
    digest = hashlib.sha256()
    leaves = jax.tree_util.tree_leaves_with_path(params)
    sums = jax.device_get([_checksum(jnp.asarray(leaf)) for _, leaf in leaves])
    for (path, leaf), value in zip(leaves, sums, strict=True):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype} {int(value)}\n".encode())
    return digest.hexdigest()[:32]


@jax.jit
def _checksum(leaf: Array) -> UInt32[Array, ""]:
    bits = leaf.view(f"uint{8 * leaf.dtype.itemsize}").astype(jnp.uint32)
    weight = jnp.ones((), jnp.uint32)
    for axis, size in enumerate(bits.shape):
        place = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        weight = weight * jnp.uint32(size) + place
    # Odd multipliers lose no bit.
    mixed = (bits ^ bits >> 15) * (2 * weight + 1) * jnp.uint32(0x9E3779B1)
    return (mixed ^ mixed >> 13).sum(dtype=jnp.uint32)


def digest_of(chunks: Iterable[bytes]) -> str:
    """Of a file's contents, in hexadecimal."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()[:32]

"""Short names for large things, equal exactly where these are."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

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


def outline(params: PyTree) -> str:
    """Of the structure, shapes, dtypes and places of arrays alone: nothing is computed."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    lines = (
        f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype} {getattr(leaf.sharding, 'spec', '')}\n"
        for path, leaf in leaves
    )
    return digest_of(line.encode() for line in lines)


def sampled(path: Path) -> str:
    """Of the files of a model, in hexadecimal, so that hosts can tell whether they read the same.

    Their names and sizes, their ends, and a block out of every `_STRIDE` bytes: to read all would take as long as
    loading. Weights that were trained, merged or rounded otherwise differ in every block, a few bytes that were changed
    by hand may not.
    """
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if not file.is_file() or file.suffix not in _OF_A_MODEL:
            continue
        name = "" if file == path else str(file.relative_to(path))
        size = file.stat().st_size
        digest.update(f"{name} {size}\n".encode())
        with file.open("rb") as stream:
            for start in (*range(0, size, _STRIDE), max(0, size - _BLOCK)):
                stream.seek(start)
                digest.update(stream.read(_BLOCK))
    return digest.hexdigest()[:32]


_OF_A_MODEL = ("", ".safetensors", ".gguf", ".json", ".jinja")
"""Suffixes of weights and what describes them; the files of checkpoints have none."""
_BLOCK, _STRIDE = 2**12, 2**24


def digest_of(chunks: Iterable[bytes]) -> str:
    """Of a file's contents, in hexadecimal."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()[:32]

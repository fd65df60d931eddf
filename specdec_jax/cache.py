"""The key-value cache: static shapes, written in place, rolled back by lowering a length.

The layout is [L, B, G, S, H]: the slots of one head lie side by side, which is how attention reads them.
"""

import flax.struct
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from ._typing import Array, Float, Int


@flax.struct.dataclass
class KVCache:
    """Keys and values of every layer. It has no length: lengths belong to whoever commits tokens."""

    k: Float[Array, "L B G S H"]
    v: Float[Array, "L B G S H"]


def init_cache(num_layers: int, batch: int, kv_heads: int, capacity: int, head_size: int, dtype: jnp.dtype) -> KVCache:
    """An empty cache of ``2 * L * B * G * S * H`` elements of ``dtype``."""
    shape = (num_layers, batch, kv_heads, capacity, head_size)
    return KVCache(k=jnp.zeros(shape, dtype), v=jnp.zeros(shape, dtype))


def append(
    cache: Float[Array, "L B G S H"],
    layer: Int[Array, ""] | int,
    new: Float[Array, "B T G H"],
    start: Int[Array, "B"],
) -> Float[Array, "L B G S H"]:
    """Write ``new[b, t]`` at slot ``start[b] + t`` of one layer, leaving every other slot as it is.

    One slice update a row, in a loop over rows: XLA then updates the buffer where it lies, whereas a scatter over
    rows brings copies as large as the cache. ``start[b] + T`` must not exceed S: a slice update that runs over the
    end would be shifted back onto live slots, which is why `generate` allocates slack for a whole block.

    A TPU would write a single token with heads and slots the other way round, and copy the cache there and back between
    passes of one token and of several.
    """
    blocks = jnp.swapaxes(new, 1, 2).astype(cache.dtype)  # [B, G, T, H]
    layer = jnp.asarray(layer, jnp.int32)
    zero = jnp.int32(0)

    def write_row(row, cache):
        block = lax.dynamic_index_in_dim(blocks, row, axis=0, keepdims=True)[None]
        return row_major(lax.dynamic_update_slice(cache, block, (layer, row, zero, start[row], zero)))

    return lax.fori_loop(jnp.int32(0), jnp.int32(blocks.shape[0]), write_row, cache)


def row_major(array: Float[Array, "..."]) -> Float[Array, "..."]:
    """The array, held on a TPU with its last axis innermost, whatever a single product or update would have it.

    Elsewhere the compiler would gather the heads of all devices for this.
    """

    def held(array):
        return with_layout_constraint(array, Layout(tuple(range(array.ndim))))

    return lax.platform_dependent(array, tpu=held, default=lambda array: array)

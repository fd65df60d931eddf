"""Attention over the cache by `jax.nn.dot_product_attention`: cuDNN's kernels on NVIDIA GPUs, plain JAX anywhere."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax._typing import Array, Float, Int
from specdec_jax.cache import KVCache

from .attention import Visible, attend
from .own_heads import on_own_heads

_SMALLEST = 512
_WIDEST_HEAD = 128
"""That cuDNN takes on every GPU from Ampere on."""


def library(
    q: Float[Array, "B T G R H"],
    new: tuple[Float[Array, "B T G H"], Float[Array, "B T G H"]],
    cache: KVCache,
    layer: Int[Array, ""] | int,
    seen: Visible,
    *,
    scale: float,
    implementation: Literal["xla", "cudnn"],
) -> Float[Array, "B T G R H"]:
    """`attention.Attend`. What cuDNN does not take goes to `attention.attend`.

    The library adds a large negative number where a mask hides a slot, which takes a finite score to weight 0 but not a
    NaN. So keys that some of the tokens may not see are made finite first, and who does see a NaN gets it afterwards.
    """
    H, S = q.shape[-1], cache.k.shape[3]
    taken = q.dtype in (jnp.bfloat16, jnp.float16) and q.dtype == cache.k.dtype and H % 8 == 0 and H <= _WIDEST_HEAD
    if implementation == "cudnn" and not taken:
        return attend(q, new, cache, layer, seen, scale=scale)

    def here(q, new, cache, layer, seen):
        over = partial(_over_prefix, q, cache, layer, seen, scale=scale, implementation=implementation)
        sizes = buckets(S)
        index = sum((seen.stop > size).astype(jnp.int32) for size in sizes[:-1])
        return lax.switch(index, [partial(over, size) for size in sizes])

    return on_own_heads(here, q, new, cache, layer, seen)


def buckets(slots: int) -> list[int]:
    """Powers of two, and all slots; not two that are nearly the same."""
    sizes = []
    size = _SMALLEST
    while 4 * size <= 3 * slots:
        sizes.append(size)
        size *= 2
    return [*sizes, slots]


def _over_prefix(q, cache, layer, seen, slots, *, scale, implementation):
    # Cut out and turned, for the library wants [B, S, G, H]: one writing of the slots in use, which hides keys as well.
    B, T, G, R, H = q.shape
    mask, zero = seen.mask[:, :, :slots], jnp.int32(0)
    at = (jnp.asarray(layer, jnp.int32), zero, zero, zero, zero)
    keys, values = (lax.dynamic_slice(part, at, (1, B, G, slots, H))[0] for part in (cache.k, cache.v))
    by_none, by_all = ~mask.any(axis=1)[:, None], mask.all(axis=1)[:, None]  # [B, 1, S]
    lost = jnp.isnan(keys[..., 0]) & ~by_all  # `finite` makes all of a key NaN or nothing
    keys = jnp.where((by_none | lost)[..., None], jnp.zeros((), keys.dtype), keys)
    # The library multiplies numbers of two dtypes, and relies on the usual promotion.
    with jax.numpy_dtype_promotion("standard"):
        mixed = jax.nn.dot_product_attention(
            q.reshape(B, T, G * R, H),
            *(jnp.swapaxes(part, 1, 2) for part in (keys, values)),
            mask=None if T == 1 and seen.window is None else mask[:, None],  # lengths say it all
            scale=scale,
            key_value_seq_lengths=jnp.minimum(seen.first + T, slots),
            implementation=implementation,
        )
    spoilt = (mask[:, :, None] & lost[:, None]).any(axis=-1)[..., None, None]  # [B, T, G, 1, 1]
    return jnp.where(spoilt, jnp.asarray(jnp.nan, mixed.dtype), mixed.reshape(B, T, G, R, H))

"""Attention of a few new tokens over a cache, some of whose slots are stale."""

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax._typing import Array, Bool, Float, Int
from specdec_jax.cache import KVCache, append


def visible(positions: Int[Array, "B T"], slots: int, window: int | None = None) -> Bool[Array, "B T {slots}"]:
    """Which slots the token at each position sees: its own and all before, or the last ``window`` of them."""
    slot = jnp.arange(slots, dtype=jnp.int32)[None, None]
    query = positions[:, :, None]
    seen = slot <= query
    return seen if window is None else seen & (slot > query - window)


def write(
    cache: KVCache,
    layer: Int[Array, ""] | int,
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    start: Int[Array, "B"],
) -> KVCache:
    """Write keys and values at slots ``start .. start + T - 1`` of one layer.

    Values in the cache are always finite, since a masked slot counts with weight 0 and 0 * NaN is NaN: a slot that has
    gone stale would spoil whoever comes next. The NaN goes into the key instead, which the mask does hide, so that
    whoever may see this token still gets NaN.
    """
    finite = jnp.isfinite(v)
    k = jnp.where(finite.all(axis=-1, keepdims=True), k, jnp.asarray(jnp.nan, k.dtype))
    v = jnp.where(finite, v, jnp.zeros((), v.dtype))
    return KVCache(k=append(cache.k, layer, k, start), v=append(cache.v, layer, v, start))


def attend(
    q: Float[Array, "B T G R H"], cache: KVCache, layer: Int[Array, ""] | int, mask: Bool[Array, "B T S"]
) -> Float[Array, "B T G R H"]:
    """Softmax attention of R query heads a kv head, scores and softmax in float32; masked slots weigh exactly 0."""
    B, T, G, R, H = q.shape
    keys = lax.dynamic_index_in_dim(cache.k, layer, keepdims=False)
    values = lax.dynamic_index_in_dim(cache.v, layer, keepdims=False)
    # Tokens and the heads of a group share keys, so they are the rows of one product a group.
    rows = jnp.moveaxis(q, 1, 2).reshape(B, G, T * R, H)
    scores = jnp.einsum("bgrh,bgsh->bgrs", rows, keys, preferred_element_type=jnp.float32)
    scores = (scores * H**-0.5).reshape(B, G, T, R, -1)
    weights = jax.nn.softmax(jnp.where(mask[:, None, :, None], scores, -jnp.inf), axis=-1)
    weights = weights.reshape(B, G, T * R, -1).astype(values.dtype)
    mixed = jnp.einsum("bgrs,bgsh->bgrh", weights, values, preferred_element_type=jnp.float32)
    return jnp.moveaxis(mixed.astype(q.dtype).reshape(B, G, T, R, H), 2, 1)

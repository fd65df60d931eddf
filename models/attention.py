"""Attention of a few new tokens over a cache, some of whose slots are stale."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax._typing import Array, Bool, Float, Int
from specdec_jax.cache import KVCache, append, row_major

BLOCK = 128
"""Slots that one step of the loop over the cache reads. SmolLM2-135M on two cores, 512 slots of which 100 are used:
steps of 64, 128 and 256 slots and all at once take 24.5, 24.6, 26.1 and 26.9 ms for one token, 45.7, 46.3, 48.9 and
52.3 for eight; with 400 used they are slower by up to 3 ms for one token, and equal for eight."""


class Visible(NamedTuple):
    """What the T tokens fed may see of a cache."""

    mask: Bool[Array, "B T S"]
    start: Int[Array, ""]
    """No row sees a slot before this one,"""
    stop: Int[Array, ""]
    """nor one from here on."""


def visible(positions: Int[Array, "B T"], slots: int, window: int | None = None) -> Visible:
    """The token at each position sees its own slot and all before it, or the last ``window`` of them."""
    slot = jnp.arange(slots, dtype=jnp.int32)[None, None]
    query = positions[:, :, None]
    mask = slot <= query
    start = jnp.int32(0)
    if window is not None:
        mask &= slot > query - window
        start = jnp.maximum(positions.min() - window + 1, 0)
    return Visible(mask, start, jnp.minimum(positions.max() + 1, slots))


def causal(
    positions: Int[Array, "B T"], segments: Int[Array, "B T"], window: int | None = None
) -> Bool[Array, "B T T"]:
    """Which of the tokens of a row each of them sees: those of its own segment up to itself, or the last ``window``."""
    query, key = positions[:, :, None], positions[:, None, :]
    seen = (key <= query) & (segments[:, :, None] == segments[:, None, :])
    return seen if window is None else seen & (key > query - window)


def attend_all(
    q: Float[Array, "B T G R H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    mask: Bool[Array, "B T T"],
    *,
    scale: float,
) -> Float[Array, "B T G R H"]:
    """Softmax attention of tokens over each other, scores and softmax in float32."""
    B, T, G, R, H = q.shape
    mixed = jax.nn.dot_product_attention(q.reshape(B, T, G * R, H), k, v, mask=mask[:, None], scale=scale)
    return mixed.reshape(B, T, G, R, H)


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
    q: Float[Array, "B T G R H"], cache: KVCache, layer: Int[Array, ""] | int, seen: Visible, *, scale: float
) -> Float[Array, "B T G R H"]:
    """Softmax attention of R query heads a kv head, scores and softmax in float32; masked slots weigh exactly 0.

    The cost follows the slots that are in use, not the capacity: blocks of slots are read one after the other, each
    with a softmax of its own that is merged with what came before (Milakov and Gimelshein, 2018, algorithm 3).
    """
    B, T, G, R, H = q.shape
    S = cache.k.shape[3]
    size = min(BLOCK, S)
    # Tokens and the heads of a group share keys, so they are the rows of one product a group.
    rows = jnp.moveaxis(q, 1, 2).reshape(B, G, T * R, H)

    def block(index, carry):
        top, total, mixed = carry
        # The last block may be pushed back to end with the cache: what it reads again is masked.
        first = jnp.minimum(index * size, S - size)
        keys, values = (
            lax.dynamic_slice(part, (layer, 0, 0, first, 0), (1, B, G, size, H)) for part in (cache.k, cache.v)
        )
        # A TPU multiplies narrow heads best the other way round, and would turn the whole cache in every layer.
        keys, values = (row_major(part)[0] for part in (keys, values))
        mask = lax.dynamic_slice_in_dim(seen.mask, first, size, axis=2)
        mask &= (first + jnp.arange(size, dtype=jnp.int32) >= index * size)[None, None]
        scores = jnp.einsum("bgrh,bgsh->bgrs", rows, keys, preferred_element_type=jnp.float32) * scale
        scores = jnp.where(mask[:, None, :, None], scores.reshape(B, G, T, R, size), -jnp.inf)
        scores = scores.reshape(B, G, T * R, size)

        highest = jnp.maximum(top, scores.max(axis=-1))
        level = jnp.where(highest == -jnp.inf, 0.0, highest)[..., None]
        weights = jnp.exp(scores - level)
        before = jnp.exp(top[..., None] - level)
        part = jnp.einsum("bgrs,bgsh->bgrh", weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
        return highest, total * before + weights.sum(axis=-1, keepdims=True), mixed * before + part

    nothing = (
        jnp.full((B, G, T * R), -jnp.inf, jnp.float32),
        jnp.zeros((B, G, T * R, 1), jnp.float32),
        jnp.zeros((B, G, T * R, H), jnp.float32),
    )
    _, total, mixed = lax.fori_loop(seen.start // size, -(-seen.stop // size), block, nothing)
    return jnp.moveaxis((mixed / total).astype(q.dtype).reshape(B, G, T, R, H), 2, 1)

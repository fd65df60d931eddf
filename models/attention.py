"""Attention of a few new tokens over a cache, some of whose slots are stale."""

from collections.abc import Callable, Sequence
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
    first: Int[Array, "B"]
    """The slot of each row's first token fed; the others lie behind it."""
    window: Int[Array, ""] | None
    """A token sees so many slots, its own the last. None: it sees its own and all before it."""


Attend = Callable[..., Array]
"""``attend(q [B, T, G, R, H], new, cache, layer, seen, *, scale) -> mixed [B, T, G, R, H]``

Softmax attention of R query heads a kv head over one layer of the cache. ``new`` are the T tokens' own keys and values
as `finite` gives them, each [B, T, G, H]: they are in the cache already, and a kernel may find it cheaper to take them
from here. Masked slots weigh exactly 0, whatever their keys are.
"""


def visible(positions: Int[Array, "B T"], slots: int, window: int | None = None) -> Visible:
    """The token at each position sees its own slot and all before it, or the last ``window`` of them."""
    (seen,) = visible_by([window], positions, slots)
    return seen


def visible_by(windows: Sequence[int | None], positions: Int[Array, "B T"], slots: int) -> list[Visible]:
    """The same for several windows: all written out if one of them cuts anything off, so that they can be stacked."""
    narrow = any(window is not None and window < slots for window in windows)
    slot = jnp.arange(slots, dtype=jnp.int32)[None, None]
    query = positions[:, :, None]
    stop = jnp.minimum(positions.max() + 1, slots)
    found = []
    for window in windows:
        mask, start, width = slot <= query, jnp.int32(0), None
        if narrow:
            width = jnp.int32(slots if window is None else window)
            mask &= slot > query - width
            start = jnp.maximum(positions.min() - width + 1, 0)
        found.append(Visible(mask, start, stop, positions[:, 0], width))
    return found


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


def finite(
    k: Float[Array, "B T G H"], v: Float[Array, "B T G H"]
) -> tuple[Float[Array, "B T G H"], Float[Array, "B T G H"]]:
    """Keys and values as the cache may hold them.

    Values in the cache are always finite, since a masked slot counts with weight 0 and 0 * NaN is NaN: a slot that has
    gone stale would spoil whoever comes next. The NaN goes into the key instead, which the mask does hide, so that
    whoever may see this token still gets NaN.
    """
    sound = (jnp.isfinite(k) & jnp.isfinite(v)).all(axis=-1, keepdims=True)
    k = jnp.where(sound, k, jnp.asarray(jnp.nan, k.dtype))
    return k, jnp.where(jnp.isfinite(v), v, jnp.zeros((), v.dtype))


def over_cache(
    attend: Attend,
    q: Float[Array, "B T G R H"],
    k: Float[Array, "B T G H"],
    v: Float[Array, "B T G H"],
    cache: KVCache,
    layer: Int[Array, ""] | int,
    seen: Visible,
    *,
    scale: float,
) -> tuple[Float[Array, "B T G R H"], KVCache]:
    """Put the tokens' keys and values into one layer of the cache, and let them attend."""
    k, v = finite(k, v)
    cache = KVCache(k=append(cache.k, layer, k, seen.first), v=append(cache.v, layer, v, seen.first))
    return attend(q, (k, v), cache, layer, seen, scale=scale), cache


def attend(
    q: Float[Array, "B T G R H"],
    new: tuple[Float[Array, "B T G H"], Float[Array, "B T G H"]],
    cache: KVCache,
    layer: Int[Array, ""] | int,
    seen: Visible,
    *,
    scale: float,
) -> Float[Array, "B T G R H"]:
    """`Attend` in plain JAX, scores and softmax in float32, on every platform.

    The cost follows the slots that are in use, not the capacity: blocks of slots are read one after the other, each
    with a softmax of its own that is merged with what came before (Milakov and Gimelshein, 2018, algorithm 3).
    """
    B, T, G, R, H = q.shape
    S = cache.k.shape[3]
    size = min(BLOCK, S)
    # Tokens and the heads of a group share keys, so they are the rows of one product a group.
    rows = jnp.moveaxis(q, 1, 2).reshape(B, G, T * R, H)
    # Of one dtype where a caller has 64 bits enabled too.
    layer, zero = jnp.asarray(layer, jnp.int32), jnp.int32(0)

    def block(index, carry):
        top, total, mixed = carry
        # The last block may be pushed back to end with the cache: what it reads again is masked.
        first = jnp.minimum(index * size, S - size)
        keys, values = (
            lax.dynamic_slice(part, (layer, zero, zero, first, zero), (1, B, G, size, H)) for part in (cache.k, cache.v)
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

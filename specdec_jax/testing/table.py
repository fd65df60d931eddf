"""Toy language models whose every probability is known, with a real cache that shows mistakes in its handling.

The cache holds the tokens fed so far, [B, S], and the logits are read off *the cache*, so a slot that was rolled back
wrongly, skipped or overwritten gives other logits. A slot that nobody wrote gives NaN.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import Array, Float, Int, Shaped
from ..lm import FeatureModel, LanguageModel
from .exact import Tokens

_UNWRITTEN = -1
_BROKEN = np.uint32(0xFFFFFFFF)


def markov_model(vocab_size: int, order: int = 1, max_positions: int | None = None) -> LanguageModel:
    """A Markov chain: ``params`` [V] * order + [V] holds the logits after each run of ``order`` tokens.

    Where a row has fewer tokens than that, token 0 stands for the missing ones.
    """

    def apply(params, tokens, cache, lengths):
        cache = _write(cache, tokens, lengths)
        slots = _slots(tokens, lengths)
        context = [_read(cache, slots - back) for back in range(order - 1, -1, -1)]
        unwritten = jnp.stack(context).min(0) < 0
        logits = jnp.asarray(params)[tuple(jnp.maximum(token, 0) for token in context)]
        return jnp.where(unwritten[:, :, None], jnp.nan, logits), jnp.stack(context, axis=-1), cache

    return LanguageModel(_init_cache, apply, vocab_size, max_positions)


def markov_head(vocab_size: int, order: int = 1, max_positions: int | None = None) -> FeatureModel:
    """A feature head for a `markov_model` of that order, with params of the same shape.

    A feature is the last ``order`` tokens, which `markov_model` gives out; the head needs no cache.
    """

    def init(batch, slots):
        del slots
        return (), jnp.zeros((batch, order), jnp.int32)

    def apply(params, features, tokens, cache, lengths):
        del params, lengths
        return jnp.concatenate([features[:, :, 1:], tokens[:, :, None]], axis=-1), cache

    def logits(params, features):
        return jnp.asarray(params)[tuple(jnp.moveaxis(jnp.maximum(features, 0), -1, 0))]

    return FeatureModel(init, lambda params, hidden: hidden, apply, logits, vocab_size, max_positions)


def markov_logits(params: Float[np.ndarray, "*contexts V"], tokens: Tokens) -> Float[np.ndarray, "V"]:
    """What `markov_model` says after ``tokens``, in plain NumPy."""
    order = params.ndim - 1
    return params[tuple(([0] * order + list(tokens))[-order:])]


def history_model(vocab_size: int, max_positions: int | None = None) -> LanguageModel:
    """A model that forgets nothing: a hash of all tokens so far, order included, picks a row of ``params`` [R, V]."""

    def apply(params, tokens, cache, lengths):
        cache = _write(cache, tokens, lengths)
        slots = _slots(tokens, lengths)
        place = jnp.arange(cache.shape[1], dtype=jnp.uint32)[None, :]
        digest = jnp.cumsum(_mix(cache.astype(jnp.uint32), place), axis=1, dtype=jnp.uint32)
        digest = jnp.take_along_axis(digest, slots, axis=1)
        unwritten = jnp.take_along_axis(lax.cummin(cache, axis=1), slots, axis=1) < 0
        logits = jnp.asarray(params)[(digest % params.shape[0]).astype(jnp.int32)]
        return jnp.where(unwritten[:, :, None], jnp.nan, logits), digest[:, :, None], cache

    return LanguageModel(_init_cache, apply, vocab_size, max_positions)


def history_head(vocab_size: int, max_positions: int | None = None) -> FeatureModel:
    """A feature head for `history_model`, with params of the same shape: the same logits, if the params are the same.

    A feature is the hash of all tokens so far, which `history_model` gives out. The cache holds the features that came
    out, and a pair that does not go on from the one before it gives NaN.
    """

    def init(batch, slots):
        return jnp.zeros((batch, slots + 1, 1), jnp.uint32), jnp.zeros((batch, 1), jnp.uint32)

    def apply(params, features, tokens, cache, lengths):
        slots = _slots(tokens, lengths)
        digest = features + _mix(tokens.astype(jnp.uint32), slots.astype(jnp.uint32) + 1)[:, :, None]
        cache = jax.vmap(lambda row, new, start: lax.dynamic_update_slice(row, new, (start + 1, 0)))(
            cache, digest, lengths
        )
        # Slot 0 stands for the pair before the first: nobody knows what came out of that.
        before = jnp.take_along_axis(cache, slots[:, :, None], axis=1)
        goes_on = (before == features) | (slots == 0)[:, :, None]
        return jnp.where(goes_on, digest, _BROKEN), cache

    def logits(params, features):
        row = (features[:, :, 0] % params.shape[0]).astype(jnp.int32)
        return jnp.where(features == _BROKEN, jnp.nan, jnp.asarray(params)[row])

    return FeatureModel(init, lambda params, hidden: hidden, apply, logits, vocab_size, max_positions)


def history_logits(params: Float[np.ndarray, "R V"], tokens: Tokens) -> Float[np.ndarray, "V"]:
    """What `history_model` says after ``tokens``, in plain NumPy."""
    fed = np.asarray(tokens, np.uint32)
    digest = _mix(fed, np.arange(len(fed), dtype=np.uint32)).sum(dtype=np.uint32)
    return params[int(digest) % len(params)]


def random_logits(seed: int, *shape: int, spread: float = 1.5) -> Float[np.ndarray, "*shape"]:
    """A table of logits: float32 normal numbers times ``spread``."""
    return (spread * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def _init_cache(batch: int, capacity: int) -> Int[Array, "B S"]:
    return jnp.full((batch, capacity), _UNWRITTEN, jnp.int32)


def _write(cache: Int[Array, "B S"], tokens: Int[Array, "B T"], lengths: Int[Array, "B"]) -> Int[Array, "B S"]:
    # Like a real cache's slice update, a write past the end is shifted back onto live slots: the caller must not.
    return jax.vmap(lambda row, new, start: lax.dynamic_update_slice(row, new, (start,)))(
        cache, tokens.astype(cache.dtype), lengths
    )


def _slots(tokens: Int[Array, "B T"], lengths: Int[Array, "B"]) -> Int[Array, "B T"]:
    return lengths[:, None] + jnp.arange(tokens.shape[1], dtype=lengths.dtype)[None, :]


def _read(cache: Int[Array, "B S"], slots: Int[Array, "B T"]) -> Int[Array, "B T"]:
    found = jnp.take_along_axis(cache, jnp.maximum(slots, 0), axis=1)
    return jnp.where(slots < 0, 0, found)


def _mix(token: Shaped[Array | np.ndarray, "..."], place: Shaped[Array | np.ndarray, "..."]):
    """A well-stirred 32-bit number for a token at a place; the same for NumPy and JAX, which both wrap around."""
    bits = (token + np.uint32(1)) * np.uint32(0x9E3779B1) ^ (place + np.uint32(1)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ bits >> np.uint32(15)) * np.uint32(0x2C1B3C6D)
    return bits ^ bits >> np.uint32(12)

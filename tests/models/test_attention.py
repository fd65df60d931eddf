"""Attention block by block, against plain softmax in float64, over caches of several blocks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once
from programs import quick

from specdec_jax.cache import KVCache
from specdec_jax.models.attention import attend, visible

B, G, R, H, L = 3, 2, 3, 8, 2
ATTEND = quick(partial(attend, scale=H**-0.5))
SLOTS = 300  # two whole blocks and a part of one
STARTS = [[0, 1, 5], [290, 3, 130], [127, 128, 129], [255, 256, 296]]


@pytest.fixture(scope="module")
def cache():
    keys, values = (4 * jax.random.normal(jax.random.key(seed), (L, B, G, SLOTS, H)) for seed in (0, 1))
    return KVCache(k=keys, v=values)


@pytest.mark.parametrize("window", [None, 1, 5, 130])
@pytest.mark.parametrize("starts", at_once(STARTS, STARTS[1:3]))
@pytest.mark.parametrize("T", [1, 4])
def test_equals_softmax(T, starts, window, cache):
    q = 2 * jax.random.normal(jax.random.key(2), (B, T, G, R, H))
    positions = jnp.array(starts)[:, None] + jnp.arange(T)[None]
    stale = (jnp.arange(SLOTS)[None] > positions.max(1)[:, None])[None, :, None, :, None]
    # Keys of stale slots may be anything; their values are finite, see `write`.
    spoilt = KVCache(k=jnp.where(stale, jnp.nan, cache.k), v=cache.v)
    got = ATTEND(q, spoilt, jnp.int32(1), visible(positions, SLOTS, window))
    for row, first in enumerate(starts):
        for t in range(T):
            seen = slice(0 if window is None else max(first + t - window + 1, 0), first + t + 1)
            want = softmax_attention(q[row, t], cache.k[1, row, :, seen], cache.v[1, row, :, seen])
            np.testing.assert_allclose(got[row, t], want, atol=2e-5)


def softmax_attention(q, keys, values):
    q, keys, values = (np.asarray(x, np.float64) for x in (q, keys, values))
    scores = np.einsum("grh,gsh->grs", q, keys) / np.sqrt(H)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("grs,gsh->grh", weights / weights.sum(-1, keepdims=True), values)


def test_only_blocks_in_use_are_read(cache):
    """What a program must not touch may be NaN in keys and values alike."""
    positions = jnp.array([[140], [200], [255]])
    seen = visible(positions, SLOTS, window=12)
    assert (int(seen.start), int(seen.stop)) == (129, 256)
    unread = (jnp.arange(SLOTS) < 128) | (jnp.arange(SLOTS) >= 256)
    spoilt = jax.tree.map(lambda x: jnp.where(unread[None, None, None, :, None], jnp.nan, x), cache)
    q = jax.random.normal(jax.random.key(3), (B, 1, G, R, H))
    assert np.isfinite(attend(q, spoilt, 0, seen, scale=1.0)).all()

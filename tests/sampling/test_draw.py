"""The draws and the keys they come from."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from marks import at_once

from specdec_jax.sampling import RoundKeys, draw, row_keys
from specdec_jax.sampling.draw import ACCEPT, COUPLED, DRAFT, RESIDUAL, position_noise, stream
from specdec_jax.testing import chi_square_p_value


@partial(jax.jit, static_argnums=(2, 3))
def counts(key, weights, rows, chunks):
    """How often each token is drawn in ``rows * chunks`` draws."""

    def chunk(key):
        tokens = draw(row_keys(key, rows), jnp.broadcast_to(weights, (rows, *weights.shape)))
        return jnp.zeros(weights.shape, jnp.int32).at[tokens].add(1)

    return lax.map(chunk, jax.random.split(key, chunks)).sum(0)


@pytest.mark.parametrize("size", at_once([2, 5, 127, 128, 129, 300], [2, 129, 300]))
def test_tokens_come_in_proportion_to_their_weights(size):
    weights = np.random.default_rng(size).gamma(0.5, size=size).astype(np.float32)
    weights[1::3] = 0
    drawn = counts(jax.random.key(size), weights, 20_000, 5)
    assert chi_square_p_value(drawn, weights / weights.sum()) > 1e-4


@pytest.mark.parametrize(
    ("size", "place", "weight", "chunks"), at_once([(8, 6, 4e-6, 16), (130, 129, 64e-6, 1)], [(130, 129, 64e-6, 1)])
)
def test_rare_token_comes_at_its_own_rate(size, place, weight, chunks):
    weights = np.full(size, 1e-12, np.float32)
    weights[3], weights[place] = 1, weight
    drawn = np.asarray(counts(jax.random.key(place), weights, 2**18, chunks))
    law = np.array([1.0, weight]) / (1 + weight)
    assert chi_square_p_value([drawn.sum() - drawn[place], drawn[place]], law) > 1e-3  # 17 expected


def test_noise_reaches_beyond_what_23_random_bits_allow():
    """From a plain float32 uniform it would end at 15.9, and tokens rarer than that would never come."""
    noise = position_noise(row_keys(jax.random.key(1), 2**11), jnp.arange(2**11, dtype=jnp.int32), 2**14)
    assert 12 < (noise > 14).sum() < 50  # 28 expected
    assert 1 <= (noise > 16).sum() <= 12  # 3.8 expected
    assert np.isfinite(noise.min())
    assert np.isfinite(noise.max())


def test_single_key_becomes_one_a_row():
    keys = row_keys(jax.random.key(0), 5)
    assert keys.shape == (5,)
    assert len(np.unique(jax.random.key_data(keys), axis=0)) == 5
    np.testing.assert_array_equal(jax.random.key_data(row_keys(jax.random.key(0), 3)), jax.random.key_data(keys)[:3])


def test_keys_given_one_a_row_stay_as_they_are():
    keys = jax.random.split(jax.random.key(0), 4)
    np.testing.assert_array_equal(jax.random.key_data(row_keys(keys, 4)), jax.random.key_data(keys))
    with pytest.raises(ValueError, match=r"4 keys; expected a single key or one a row, 3"):
        row_keys(keys, 3)


def test_no_two_draws_share_a_key():
    row = row_keys(jax.random.key(0), 2)
    seen = [
        jax.random.key_data(stream(RoundKeys(row, jnp.full(2, start, jnp.int32)), which, index))
        for start in (0, 1, 2, 5)
        for which in (DRAFT, ACCEPT, RESIDUAL, COUPLED)
        for index in range(4)
    ]
    seen = np.concatenate(seen)
    assert len(np.unique(seen, axis=0)) == len(seen)

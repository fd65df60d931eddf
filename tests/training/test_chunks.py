"""Sums in chunks are the sums, and so are their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training.chunks import sums_in_chunks


@pytest.mark.parametrize("chunk", [1, 4, 11, 64])
def test_sums_and_gradients(chunk):
    x, y = jax.random.normal(jax.random.key(0), (2, 11, 3))
    mask = jax.random.bernoulli(jax.random.key(1), 0.6, (11, 3))

    def whole(x):
        return (jnp.where(mask, x * y, 0).sum(0) * jnp.arange(1.0, 4.0)).sum()

    def parts(x):
        return sums_in_chunks(lambda a, b: (a * b, a + b), mask, x, y, chunk=chunk)

    np.testing.assert_allclose(parts(x)[0], jnp.where(mask, x * y, 0).sum(0), rtol=2e-5)
    np.testing.assert_allclose(parts(x)[1], jnp.where(mask, x + y, 0).sum(0), rtol=2e-5)
    got = jax.grad(lambda x: (parts(x)[0] * jnp.arange(1.0, 4.0)).sum())(x)
    np.testing.assert_allclose(got, jax.grad(whole)(x), rtol=1e-6)


def test_what_is_masked_may_be_infinite():
    x = jnp.array([1.0, 0.0, 4.0])
    mask = jnp.array([True, False, True])

    def total(x):
        return sums_in_chunks(lambda a: (jnp.log(jnp.where(a > 0, a, 1)), 1 / a), mask, x, chunk=2)[1]

    assert float(total(x)) == 1.25
    assert float(sums_in_chunks(lambda a: (a, a), jnp.zeros(3, bool), x, chunk=2)[0]) == 0


def test_the_logits_of_all_positions_never_exist():
    """The largest array of the compiled gradient has one chunk's logits."""
    features, weight = jnp.zeros((64, 8)), jnp.zeros((512, 8))

    def total(features, weight):
        def one(x):
            logits = x @ weight.T
            return jax.nn.logsumexp(logits, axis=-1), logits[:, 0]

        return sums_in_chunks(one, jnp.ones(64, bool), features, chunk=4)[0]

    text = jax.jit(jax.grad(total, argnums=(0, 1))).lower(features, weight).compile().as_text() or ""
    assert "f32[4,512]" in text or "f32[512,4]" in text
    assert "f32[64,512]" not in text
    assert "f32[512,64]" not in text
    assert "f32[16,4,512]" not in text

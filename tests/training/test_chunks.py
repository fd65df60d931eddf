"""Sums in chunks are the sums, and so are their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training.chunks import sums_in_chunks


@pytest.mark.parametrize("chunk", [1, 8, 11, 64])
def test_sums_and_gradients(chunk):
    x, y = jax.random.normal(jax.random.key(0), (2, 2, 11, 3))
    mask = jax.random.bernoulli(jax.random.key(1), 0.3, (2, 11, 3))
    scale = jnp.arange(1.0, 4.0)

    @jax.jit
    @jax.value_and_grad
    def whole(x):
        return (jnp.where(mask, x * y, 0).sum((0, 1)) * scale).sum()

    @jax.jit
    @jax.value_and_grad
    def parts(x):
        return (sums_in_chunks(lambda a, b: (a * b, a + b), mask, x, y, chunk=chunk)[0] * scale).sum()

    for got, want in zip(parts(x), whole(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5)
    second = jax.jit(lambda: sums_in_chunks(lambda a, b: (a * b, a + b), mask, x, y, chunk=chunk)[1])()
    np.testing.assert_allclose(second, jnp.where(mask, x + y, 0).sum((0, 1)), rtol=2e-5)


def test_what_is_masked_may_be_infinite():
    x = jnp.array([1.0, 0.0, 4.0]).reshape(1, 3, 1)
    mask = x > 0
    assert float(sums_in_chunks(lambda a: (a, 1 / a), mask, x, chunk=2)[1][0]) == 1.25
    assert float(sums_in_chunks(lambda a: (a, a), mask & (x > 9), x, chunk=2)[0][0]) == 0


def test_chunks_of_what_does_not_count_are_left_out():
    """Rows of 8 of which 1, 3 and 2 positions count are three chunks of one column, wherever these positions lie."""
    mask = np.zeros((3, 8, 1), bool)
    mask[0, 5] = mask[1, [0, 3, 7]] = mask[2, [6, 7]] = True
    calls = []

    def counted(a):
        jax.debug.callback(lambda: calls.append(1))
        return a, a

    got = sums_in_chunks(counted, jnp.asarray(mask), jnp.ones((3, 8, 1)), chunk=3)
    jax.effects_barrier()
    assert float(got[0][0]) == 6
    assert len(calls) == 3


def test_the_logits_of_all_positions_never_exist():
    """The largest array of the compiled gradient has one chunk's logits."""
    features, weight = jnp.zeros((2, 32, 8)), jnp.zeros((512, 8))

    def total(features, weight):
        def one(x):
            logits = x @ weight.T
            return jax.nn.logsumexp(logits, axis=-1)[:, None], logits[:, :1]

        return sums_in_chunks(one, jnp.ones((2, 32, 1), bool), features, chunk=4)[0][0]

    text = jax.jit(jax.grad(total, argnums=(0, 1))).lower(features, weight).compile().as_text() or ""
    assert "f32[4,512]" in text or "f32[512,4]" in text
    for rows in ("64,512", "512,64", "2,32,512", "16,4,512", "32,2,512"):
        assert f"f32[{rows}]" not in text

"""Distillation losses against known values, float64 differences, and each other."""

from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training import LOSS_NAMES, LOSSES, LossConfig, acceptance, cross_entropy, masked_mean
from specdec_jax.training.losses import CROSS_ENTROPY, OF_ACCEPTANCE

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
VALUES = {
    "forward_kl": 0.223805,
    "reverse_kl": 0.193794,
    "jensen_shannon": 0.050875,
    "total_variation": 0.3,
    "negative_log_acceptance": 0.356675,
    "hybrid": np.exp(-2.1) * 0.223805 + (1 - np.exp(-2.1)) * 0.3,
}
each_loss = pytest.mark.parametrize("name", LOSSES)


def logits(probabilities, shift=0.0):
    return jnp.asarray(np.log(probabilities) + shift, jnp.float32)


def test_one_list_of_names():
    """The command's help shows it, errors name it, and each is in the registry or is the baseline beside it."""
    assert (*LOSSES, CROSS_ENTROPY) == LOSS_NAMES
    assert get_args(get_type_hints(LossConfig)["name"]) == LOSS_NAMES


@each_loss
def test_known_value(name):
    assert float(LOSSES[name](logits(P, 1.5), logits(Q, -0.5))) == pytest.approx(VALUES[name], abs=1e-5)


def test_acceptance_is_the_overlap():
    assert float(acceptance(logits(P), logits(Q))) == pytest.approx(0.7, abs=1e-6)


@each_loss
def test_zero_at_the_teacher_and_positive_elsewhere(name):
    x = jax.random.normal(jax.random.key(0), (5, 4, 9))
    y = jax.random.normal(jax.random.key(1), (5, 4, 9))
    np.testing.assert_allclose(LOSSES[name](x, x), 0, atol=1e-6)
    assert (LOSSES[name](x, y) > 0).all()


@each_loss
def test_temperature_divides_both_logits(name):
    x, y = jax.random.normal(jax.random.key(0), (2, 3, 9))
    np.testing.assert_allclose(LOSSES[name](x, y, temperature=2.0), LOSSES[name](x / 2, y / 2), rtol=1e-5)


@each_loss
def test_gradient_against_float64_differences(name):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 7)) * 2
    analytic = jax.grad(lambda s: LOSSES[name](jnp.asarray(x, jnp.float32), s))(jnp.asarray(y, jnp.float32))
    step = 1e-6
    numeric = [(_float64(name, x, y + d, y) - _float64(name, x, y - d, y)) / (2 * step) for d in np.eye(len(y)) * step]
    np.testing.assert_allclose(analytic, numeric, atol=2e-5)


def _float64(name, x, y, weighed_at):
    """The definitions, in NumPy. The hybrid's weight does not move with y: its gradient is stopped."""
    p, q, at = (np.exp(v) / np.exp(v).sum() for v in (x, y, weighed_at))
    m = (p + q) / 2
    forward, refused = (p * np.log(p / q)).sum(), 1 - np.minimum(p, q).sum()
    weight = np.exp(-3 * np.minimum(p, at).sum())
    return {
        "forward_kl": forward,
        "reverse_kl": (q * np.log(q / p)).sum(),
        "jensen_shannon": ((p * np.log(p / m)).sum() + (q * np.log(q / m)).sum()) / 2,
        "total_variation": refused,
        "negative_log_acceptance": -np.log(1 - refused),
        "hybrid": weight * forward + (1 - weight) * refused,
    }[name]


@each_loss
def test_the_teacher_gets_no_gradient(name):
    x, y = jax.random.normal(jax.random.key(0), (2, 9))
    np.testing.assert_array_equal(jax.grad(lambda t: LOSSES[name](t, y))(x), np.zeros(9))


@each_loss
@pytest.mark.parametrize("last", [0.2, 30.0, -np.inf], ids=["said", "said most", "never said"])
def test_a_token_that_the_teacher_never_says_leaves_everything_finite(name, last):
    """Such as a hole in its vocabulary, whatever the student says there."""
    x = jnp.array([0.0, 1.0, -jnp.inf])
    value, gradient = jax.value_and_grad(lambda s: LOSSES[name](x, s))(jnp.array([0.3, 0.1, last]))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert last > 0 or gradient[2] == 0


def test_reverse_kl_leads_away_from_what_the_teacher_never_says():
    x, y = jnp.array([0.0, 1.0, -jnp.inf]), jnp.array([0.3, 0.1, 0.2])
    assert jax.grad(lambda s: LOSSES["reverse_kl"](x, s))(y)[2] > 1
    p, q = jax.nn.softmax(x), jax.nn.softmax(y)
    want = (q[:2] * jnp.log(q[:2] / p[:2])).sum() + q[2] * (jnp.log(q[2]) + 126 * np.log(2))  # 2^-126, the least
    assert float(LOSSES["reverse_kl"](x, y)) == pytest.approx(float(want), rel=1e-5)


# ---- a student that knows some of the tokens ----

# p of the tokens it knows, q, and by hand: 1 - alpha, -log alpha, and the hybrid with the KL of p divided anew.
KNOWN = [
    ((0.1, 0.1), (0.5, 0.5), (0.8, 1.609438, 0.360951)),  # alpha .2, KL 0, weight exp(-.6)
    ((0.5, 0.2), (0.4, 0.6), (0.4, 0.510826, 0.367300)),  # alpha .6, KL (5/7, 2/7) to q .202176, weight exp(-1.8)
]


@pytest.mark.parametrize(("p", "q", "values"), KNOWN)
@pytest.mark.parametrize("place", range(3))
def test_acceptance_of_all_tokens(place, p, q, values):
    """Alpha is sum min(p, q) with q = 0 elsewhere, however large the logits are."""
    teacher, total = logits(p, 2.5), jnp.float32(2.5)
    assert float(LOSSES[OF_ACCEPTANCE[place]](teacher, logits(q, -1.0), log_total=total)) == pytest.approx(
        values[place], abs=1e-5
    )
    assert float(acceptance(teacher, logits(q), log_total=total)) == pytest.approx(1 - values[0], abs=1e-6)


@pytest.mark.parametrize("name", OF_ACCEPTANCE)
def test_a_total_of_the_known_tokens_changes_nothing(name):
    x, y = jax.random.normal(jax.random.key(0), (2, 3, 9))
    total = jax.nn.logsumexp(x / 2, axis=-1)
    want = LOSSES[name](x, y, temperature=2.0)
    np.testing.assert_allclose(LOSSES[name](x, y, temperature=2.0, log_total=total), want, atol=1e-6)


@pytest.mark.parametrize("name", OF_ACCEPTANCE)
def test_gradient_of_the_acceptance_of_all_tokens(name):
    """As of a student of all tokens that gives the last of them nothing."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=7), rng.normal(size=6)
    total = jnp.float32(np.log(np.exp(x).sum()))

    def value(y, weighed_at):
        p, q, at = np.exp(x[:6]) / np.exp(x).sum(), np.exp(y) / np.exp(y).sum(), np.exp(weighed_at)
        alpha, weight = np.minimum(p, q).sum(), np.exp(-3 * np.minimum(p, at / at.sum()).sum())
        divergence = (p / p.sum() * np.log(p / p.sum() / q)).sum()
        return {
            "total_variation": 1 - alpha,
            "negative_log_acceptance": -np.log(alpha),
            "hybrid": weight * divergence + (1 - weight) * (1 - alpha),
        }[name]

    step = 1e-6
    numeric = [(value(y + d, y) - value(y - d, y)) / (2 * step) for d in np.eye(6) * step]
    teacher = jnp.asarray(x[:6], jnp.float32)
    found = jax.grad(lambda s: LOSSES[name](teacher, s, log_total=total))(jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(found, numeric, atol=2e-5)


def test_jensen_shannon_at_another_beta():
    beta, m = 0.1, 0.1 * P + 0.9 * Q
    expected = beta * (P * np.log(P / m)).sum() + (1 - beta) * (Q * np.log(Q / m)).sum()
    assert float(LOSSES["jensen_shannon"](logits(P), logits(Q), beta=beta)) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match=r"beta is 1\.0"):
        LOSSES["jensen_shannon"](logits(P), logits(Q), beta=1.0)


def test_cross_entropy_and_masked_mean():
    values = cross_entropy(jnp.array([0, 2]), jnp.stack([logits(P), logits(Q)]))
    np.testing.assert_allclose(values, [-np.log(0.5), -np.log(0.3)], atol=1e-6)
    assert float(masked_mean(values, jnp.array([False, True]))) == pytest.approx(-np.log(0.3), abs=1e-6)
    assert float(masked_mean(values, jnp.array([False, False]))) == 0

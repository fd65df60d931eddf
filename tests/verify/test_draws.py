"""The real rules, noise and all, by chi-square: draft, acceptance and next token must not share their noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick

from specdec_jax.sampling import RoundKeys, row_keys
from specdec_jax.testing import check_draws, chi_square_p_value
from specdec_jax.verify import RULES, Proposal

SAMPLED = {name: rule for name, rule in RULES.items() if name != "greedy"}  # greedy: see test_equal_rules.py
each_rule = pytest.mark.parametrize("rule", SAMPLED.values(), ids=SAMPLED)
block_at_once = pytest.mark.parametrize(
    "rule", [pytest.param(SAMPLED[name], id=name, marks=[pytest.mark.heavy] * (name != "block")) for name in SAMPLED]
)


@block_at_once
def test_opposed_distributions_on_sixteen_tokens(rule):
    p = np.arange(1, 17) / 136
    check_draws(rule, p, p[::-1], K=2, tokens=2, key=jax.random.key(11))


@block_at_once
def test_rounds_one_after_the_other_share_no_noise(rule):
    """Two tokens, K = 3: keyed by each token's own position, the block rule would be off by .05 here."""
    check_draws(rule, np.array([1, 2]) / 3, np.array([2, 1]) / 3, K=3, tokens=5, key=jax.random.key(12))


@each_rule
def test_guesses_made_without_drawing(rule):
    rows, K = 100_000, 2
    p = np.array([0.5, 0.3, 0.2], np.float32)
    guesses = jnp.broadcast_to(jnp.array([[2, 0]], jnp.int32), (rows, K))
    keys = RoundKeys(row_keys(jax.random.key(13), rows), jnp.full(rows, 7, jnp.int32))
    proposal = Proposal(guesses, None, jnp.full(rows, K, jnp.int32))
    verdict = jax.jit(rule.verify)(keys, proposal, jnp.broadcast_to(jnp.asarray(p), (rows, K + 1, 3)))
    first = np.where(np.asarray(verdict.num_accepted) > 0, 2, np.asarray(verdict.next_token))
    assert chi_square_p_value(np.bincount(first, minlength=3), p) > 1e-4


@each_rule
def test_p_equal_to_q_up_to_rounding_never_leaves_the_support(rule):
    rows, K, V = 10_000, 3, 8
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(V), (rows, K + 1)).astype(np.float32)
    p[:, :, ::3] = 0
    p /= p.sum(-1, keepdims=True)
    q = np.nextafter(p[:, :K], np.float32(0))
    keys = RoundKeys(row_keys(jax.random.key(14), rows), jnp.zeros(rows, jnp.int32))

    @quick
    def one_round(p, q):
        guesses = jnp.stack([rule.draw(keys, jnp.int32(i), q[:, i]) for i in range(K)], axis=1)
        return rule.verify(keys, Proposal(guesses, q, jnp.full(rows, K, jnp.int32)), p)

    verdict = one_round(p, q)
    kept, following = np.asarray(verdict.num_accepted), np.asarray(verdict.next_token)
    assert (kept > 0).all()
    assert (p[np.arange(rows), kept, following] > 0).all()

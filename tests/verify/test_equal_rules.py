"""The rules that keep a guess only where it equals the token they would emit anyway: greedy and coupled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.sampling import RoundKeys, row_keys
from specdec_jax.testing import check_draws, chi_square_p_value
from specdec_jax.verify import RULES, Proposal

V, K = 4, 3
P = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


def decoded(name, guesses, lengths, rows=20_000):
    """The tokens [rows, K + 1] that a rule commits, with its next tokens where guesses are refused."""
    keys = RoundKeys(row_keys(jax.random.key(5), rows), jnp.zeros(rows, jnp.int32))
    p = jnp.broadcast_to(jnp.asarray(P), (rows, K + 1, V))
    verify = jax.jit(RULES[name].verify)
    out = np.zeros((rows, K + 1), np.int32)
    start = np.zeros(rows, np.int32)
    for _ in range(K + 1):
        place = np.minimum(start[:, None] + np.arange(K), K)
        proposal = Proposal(jnp.asarray(np.take_along_axis(guesses, place, 1)), None, jnp.asarray(lengths))
        verdict = jax.tree.map(np.asarray, verify(keys._replace(start=jnp.asarray(start)), proposal, p))
        for offset in range(K + 1):
            value = proposal.tokens[:, offset] if offset < K else verdict.next_token
            value = np.where(verdict.num_accepted == offset, verdict.next_token, value)
            here = (offset <= verdict.num_accepted) & (start + offset <= K)
            out[here, (start + offset)[here]] = value[here]
        start = np.minimum(start + verdict.num_accepted + 1, K)
    return out


@pytest.mark.parametrize("name", ["greedy", "coupled"])
def test_output_is_the_same_whatever_is_proposed(name):
    rng = np.random.default_rng(0)
    none = decoded(name, np.zeros((20_000, K + 1), np.int32), np.zeros(20_000, np.int32))
    some = rng.integers(0, V, (20_000, K + 1)).astype(np.int32)
    np.testing.assert_array_equal(decoded(name, some, rng.integers(0, K + 1, 20_000).astype(np.int32)), none)
    np.testing.assert_array_equal(decoded(name, none, np.full(20_000, K, np.int32)), none)


def test_coupled_rule_draws_from_p():
    tokens = decoded("coupled", np.zeros((20_000, K + 1), np.int32), np.zeros(20_000, np.int32))
    cells = np.ravel_multi_index(tuple(tokens.T), (V,) * (K + 1))
    law = np.einsum("a,b,c,d->abcd", P, P, P, P)
    assert chi_square_p_value(np.bincount(cells, minlength=V ** (K + 1)), law) > 1e-4


def test_coupled_rule_keeps_more_the_closer_q_is_to_p():
    """Common noise makes draft and target agree with probability at least (1 - d) / (1 + d), d = TV(p, q)."""
    rows, q = 20_000, P[::-1].copy()
    keys = RoundKeys(row_keys(jax.random.key(6), rows), jnp.zeros(rows, jnp.int32))
    q_rows, p_rows = jnp.broadcast_to(jnp.asarray(q), (rows, V)), jnp.broadcast_to(jnp.asarray(P), (rows, 2, V))
    guess = jax.jit(RULES["coupled"].draw)(keys, jnp.int32(0), q_rows)
    verdict = jax.jit(RULES["coupled"].verify)(
        keys, Proposal(guess[:, None], q_rows[:, None], jnp.ones(rows, jnp.int32)), p_rows
    )
    distance = np.abs(P - q).sum() / 2
    assert verdict.num_accepted.mean() > (1 - distance) / (1 + distance) - 0.01


def test_greedy_rule_takes_the_first_of_equals():
    p = jnp.array([[[0.2, 0.4, 0.4], [0.0, 0.5, 0.5]]], jnp.float32)
    keys = RoundKeys(row_keys(jax.random.key(0), 1), jnp.zeros(1, jnp.int32))
    for guess, expected in ((1, (1, 1)), (2, (0, 1))):
        verdict = RULES["greedy"].verify(keys, Proposal(jnp.array([[guess]]), None, jnp.ones(1, jnp.int32)), p)
        assert (int(verdict.num_accepted[0]), int(verdict.next_token[0])) == expected


def test_greedy_rule_decodes_the_likeliest_tokens():
    with pytest.raises(AssertionError, match="do not look drawn from p"):
        check_draws(RULES["greedy"], P, P[::-1], K=K, tokens=1, key=jax.random.key(7), rows=1000)
    one_hot = np.eye(V, dtype=np.float32)
    check_draws(RULES["greedy"], one_hot[2], one_hot[1], K=K, tokens=3, key=jax.random.key(7), rows=1000)

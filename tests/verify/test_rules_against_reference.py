"""The fast rules against the slow references, on the same noise."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick

from specdec_jax.sampling import RoundKeys, row_keys
from specdec_jax.sampling.draw import position_noise
from specdec_jax.testing import reference
from specdec_jax.verify import RULES, Proposal, block, token
from specdec_jax.verify.proposal import uniforms

ROWS, K, V = 400, 4, 5


@pytest.fixture(scope="module")
def round_keys():
    start = jax.random.randint(jax.random.key(1), (ROWS,), 0, 50, jnp.int32)
    return RoundKeys(row_keys(jax.random.key(0), ROWS), start)


@pytest.fixture(scope="module", params=["drawn", "guessed"])
def case(request):
    """A proposal of 0 to K guesses a row, most of them good ones, and p with a zero here and there."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.full(V, 0.5), (ROWS, K + 1))
    p = np.where(p < 0.02, 0, p)
    p = (p / p.sum(-1, keepdims=True)).astype(np.float32)
    q = 0.7 * p[:, :K] + 0.3 * rng.dirichlet(np.ones(V), (ROWS, K)).astype(np.float32)
    tokens = (q.cumsum(-1) > rng.random((ROWS, K, 1)) * q.sum(-1, keepdims=True)).argmax(-1).astype(np.int32)
    length = rng.integers(0, K + 1, ROWS).astype(np.int32)
    drawn = request.param == "drawn"
    return Proposal(jnp.asarray(tokens), jnp.asarray(q) if drawn else None, jnp.asarray(length)), jnp.asarray(p)


def rows_of(proposal, p):
    """Each row's guesses, q, p in NumPy, cut to the guesses it made."""
    tokens, length = np.asarray(proposal.tokens), np.asarray(proposal.length)
    q = np.eye(V)[tokens] if proposal.q is None else np.asarray(proposal.q, np.float64)
    p = np.asarray(p, np.float64)
    for row, n in enumerate(length):
        yield row, tokens[row, :n], q[row, :n], p[row, : n + 1]


def committed(verdict):
    """A verdict as pairs of plain numbers."""
    return list(zip(verdict.num_accepted.tolist(), verdict.next_token.tolist(), strict=True))


@pytest.mark.parametrize(
    ("parts", "slow"), [(token, reference.token_rule), (block, reference.block_rule)], ids=["token", "block"]
)
def test_sampled_rule_follows_the_definition(parts, slow, case, round_keys):
    proposal, p = case
    u = np.asarray(uniforms(round_keys, K))
    verdict = quick(parts.verify)(round_keys, proposal, p)
    weights = np.asarray(quick(parts.next_weights)(proposal, p, verdict.num_accepted), np.float64)
    verdict = committed(verdict)
    for row, tokens, q, p_row in rows_of(proposal, p):
        kept, law = slow(tokens, q, p_row, u[row])
        assert verdict[row][0] == kept, f"row {row}"
        np.testing.assert_allclose(weights[row] / weights[row].sum(), law, atol=1e-5, err_msg=f"row {row}")
        assert law[verdict[row][1]] > 0, f"row {row}"


def test_greedy_rule_follows_the_definition(case, round_keys):
    proposal, p = case
    verdict = committed(quick(RULES["greedy"].verify)(round_keys, proposal, p))
    for row, tokens, _, p_row in rows_of(proposal, p):
        assert verdict[row] == reference.greedy_rule(tokens, p_row), f"row {row}"


def test_coupled_rule_follows_the_definition(case, round_keys):
    proposal, p = case
    verdict = committed(quick(RULES["coupled"].verify)(round_keys, proposal, p))
    noise = np.stack([position_noise(round_keys.row, round_keys.start + i, V) for i in range(K + 1)], axis=1)
    for row, tokens, _, p_row in rows_of(proposal, p):
        assert verdict[row] == reference.coupled_rule(tokens, p_row, noise[row, : len(p_row)]), f"row {row}"


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_lies_past_the_guesses_made_does_not_matter(rule, case, round_keys):
    proposal, p = case
    behind = np.arange(K)[None, :] >= np.asarray(proposal.length)[:, None]
    other = proposal._replace(tokens=jnp.where(behind, V - 1, proposal.tokens))
    if proposal.q is not None:
        other = other._replace(q=jnp.where(behind[:, :, None], jnp.float32(0.25), proposal.q))
    after = np.arange(K + 1)[None, :] > np.asarray(proposal.length)[:, None]
    other_p = jnp.where(after[:, :, None], jnp.float32(1 / V), p)
    verify = quick(rule.verify)
    jax.tree.map(np.testing.assert_array_equal, verify(round_keys, proposal, p), verify(round_keys, other, other_p))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_row_does_not_depend_on_its_neighbours(rule, case, round_keys):
    proposal, p = case
    verify = quick(rule.verify)
    whole = verify(round_keys, proposal, p)
    some = partial(jax.tree.map, lambda x: x[17:20])
    jax.tree.map(np.testing.assert_array_equal, verify(some(round_keys), some(proposal), some(p)), some(whole))

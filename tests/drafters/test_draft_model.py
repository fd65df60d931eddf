"""The draft model's cache, through the distributions q that it hands over."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from programs import quick

from specdec_jax import SamplingParams, draft_model
from specdec_jax.drafters import Context
from specdec_jax.sampling import RoundKeys, row_keys
from specdec_jax.testing import history_logits, history_model, random_logits, reference
from specdec_jax.verify.token import draw_guess

V, K, ROWS, SLOTS = 8, 4, 5, 32
PARAMS = random_logits(1, 97, V)
MODEL = history_model(V)
DRAFTER = draft_model(MODEL)
VALUES = [{}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.6}, {"temperature": 0.0}]
SAMPLING = SamplingParams(
    temperature=jnp.array([1.0, 0.5, 1.0, 1.0, 0.0]),
    top_k=jnp.array([0, 0, 2, 0, 0]),
    top_p=jnp.array([1.0, 1.0, 1.0, 0.6, 1.0]),
    min_p=jnp.zeros(ROWS),
)


ROUNDS = [[4] * ROWS, [4] * ROWS, [0] * ROWS, [0] * ROWS, [0] * ROWS, [0, 1, 2, 3, 4], [3] * ROWS, [4, 0, 4, 0, 1]]


@partial(quick, static_argnames="drafter")
def propose(state, tokens, lengths, limit, params=PARAMS, drafter=DRAFTER):
    keys = RoundKeys(row_keys(jax.random.key(0), ROWS), lengths)
    context = Context(tokens, lengths, SAMPLING)
    return drafter.propose(params, state, context, K, limit, lambda index, q: draw_guess(keys, index, q))


@partial(quick, static_argnames="drafter")
def start(tokens, lengths, params=PARAMS, drafter=DRAFTER):
    return drafter.init(params, Context(tokens, lengths, SAMPLING), SLOTS, 4)


def test_q_is_the_models_distribution_after_what_was_committed():
    """Rounds of every kind: all guesses kept, some, none, no guesses at all, several of these one after the other."""
    rng = np.random.default_rng(0)
    lengths = np.array([1, 2, 6, 3, 4], np.int32)
    tokens = np.zeros((ROWS, SLOTS + 1), np.int32)
    tokens[:, :6] = rng.integers(0, V, (ROWS, 6))
    state = start(tokens, lengths)
    for limits in ROUNDS:
        limits = np.array(limits, np.int32)
        proposal, state = propose(state, tokens, lengths, limits)
        np.testing.assert_array_equal(proposal.length, limits)
        kept = rng.integers(0, limits + 1)
        kept[0] = limits[0]  # one row keeps all it guesses
        for row in range(ROWS):
            known = tokens[row, : lengths[row]].tolist()
            for place in range(limits[row]):
                wanted = reference.distribution(history_logits(PARAMS, known), **VALUES[row])
                np.testing.assert_allclose(proposal.q[row, place], wanted, atol=1e-6, err_msg=f"row {row}, {place}")
                assert wanted[int(proposal.tokens[row, place])] > 0
                known.append(int(proposal.tokens[row, place]))
            known = [*known[: lengths[row] + kept[row]], int(rng.integers(V))]
            lengths[row] = len(known)
            tokens[row, : len(known)] = known
        state = DRAFTER.commit(PARAMS, state, Context(jnp.asarray(tokens), jnp.asarray(lengths), SAMPLING), None)


def test_guesses_end_with_the_models_positions():
    short = draft_model(history_model(V, max_positions=6))
    lengths = jnp.array([1, 4, 5, 6, 7], jnp.int32)
    tokens = jnp.ones((ROWS, SLOTS + 1), jnp.int32)
    state = start(tokens, lengths, drafter=short)
    proposal, _ = propose(state, tokens, lengths, jnp.full(ROWS, K, jnp.int32), drafter=short)
    assert proposal.length.tolist() == [4, 3, 2, 1, 0]


def test_broken_distribution_ends_the_guesses_before_it():
    """Each row's q breaks after a number of guesses that is known from its own tokens."""
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, V, (ROWS, SLOTS + 1)).astype(np.int32)
    lengths = np.full(ROWS, 6, np.int32)
    broken = np.where(rng.random((97, 1)) < 0.3, np.nan, PARAMS).astype(np.float32)
    state = start(tokens, lengths, params=broken)
    proposal, _ = propose(state, tokens, lengths, np.full(ROWS, K, np.int32), params=broken)
    for row in range(ROWS):
        known = tokens[row, :6].tolist()
        sound = 0
        while sound < K and np.isfinite(history_logits(broken, known)).all():
            known.append(int(proposal.tokens[row, sound]))
            sound += 1
        assert int(proposal.length[row]) == sound
    assert len(set(proposal.length.tolist())) > 1

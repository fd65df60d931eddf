"""Early stops: where they stop, by the reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick

from specdec_jax import SamplingParams, draft_model, early_exit
from specdec_jax.drafters import Context, entropy_above, likeliest_below
from specdec_jax.sampling import RoundKeys, row_keys
from specdec_jax.testing import history_logits, history_model, random_logits, reference
from specdec_jax.verify.token import draw_guess

V, K, ROWS = 8, 4, 16
PARAMS = random_logits(1, 97, V)
MODEL = history_model(V)
TOKENS = np.random.default_rng(3).integers(0, V, (ROWS, 17)).astype(np.int32)
LENGTHS = np.full(ROWS, 6, np.int32)


def entropy(q):
    return -(q * np.log(q)).sum()


STOPS = {
    "entropy": (entropy_above(1.2), lambda q: entropy(q) > 1.2),
    "likeliest": (likeliest_below(0.5), lambda q: q.max() < 0.5),
}


@pytest.mark.parametrize("build", [draft_model, early_exit])
@pytest.mark.parametrize("stop", STOPS)
def test_guesses_end_before_the_first_q_that_says_so(build, stop):
    given, stops_at = STOPS[stop]
    drafter = build(MODEL, stop=given)
    sampling = SamplingParams().broadcast(ROWS)

    @quick
    def propose(tokens, lengths):
        context = Context(tokens, lengths, sampling)
        shared = MODEL.init_cache(ROWS, 16)
        if drafter.shares_cache:
            _, _, shared = MODEL.apply(PARAMS, tokens[:, :8], shared, jnp.zeros_like(lengths))
        memory = shared if drafter.shares_cache else drafter.init(PARAMS, context, 16, 4)
        keys = RoundKeys(row_keys(jax.random.key(0), ROWS), lengths)
        limit = jnp.full_like(lengths, K)
        return drafter.propose(PARAMS, memory, context, K, limit, lambda i, q: draw_guess(keys, i, q))[0]

    proposal = propose(TOKENS, LENGTHS)
    for row in range(ROWS):
        known = TOKENS[row, :6].tolist()
        wanted = 0
        while wanted < K and not stops_at(reference.distribution(history_logits(PARAMS, known))):
            known.append(int(proposal.tokens[row, wanted]))
            wanted += 1
        assert int(proposal.length[row]) == wanted
    assert set(proposal.length.tolist()) > {0, 1}


def test_a_certain_drafter_never_stops():
    """An entropy is no NaN where q has zeros."""
    q = jnp.eye(4)[:2]
    assert not entropy_above(0.0)(q).any()
    assert not likeliest_below(1.0)(q).any()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: entropy_above(-1.0), "nats is -1.0; expected a number from 0 to inf"),
        (lambda: likeliest_below(1.5), "probability is 1.5; expected a number from 0 to 1"),
    ],
)
def test_impossible_thresholds(build, message):
    with pytest.raises(ValueError, match=message):
        build()

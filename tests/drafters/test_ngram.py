"""The n-gram drafter against the slow matcher."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import SamplingParams, ngram
from specdec_jax.drafters import Context
from specdec_jax.testing.reference import ngram_guesses

K, WIDTH = 5, 24


def propose(drafter, tokens, lengths, limit):
    context = Context(jnp.asarray(tokens), jnp.asarray(lengths), SamplingParams())
    state = drafter.init(None, context, WIDTH, 8)
    fast = jax.jit(partial(drafter.propose, K=K, draw=lambda *_: pytest.fail("n-grams draw nothing")))
    return fast(None, state, context, limit=jnp.asarray(limit))[0]


@pytest.mark.parametrize(("largest", "smallest"), [(1, 1), (3, 1), (4, 2), (2, 2), (30, 1)])
def test_guesses_are_those_of_the_definition(largest, smallest):
    rng = np.random.default_rng(largest * 10 + smallest)
    rows = 300
    tokens = rng.integers(0, rng.choice([2, 3, 6], (rows, 1)), (rows, WIDTH)).astype(np.int32)
    lengths = rng.integers(1, WIDTH + 1, rows).astype(np.int32)
    limit = rng.integers(0, K + 1, rows).astype(np.int32)
    proposal = propose(ngram(max_ngram=largest, min_ngram=smallest), tokens, lengths, limit)
    assert proposal.q is None
    for row in range(rows):
        known = tokens[row, : lengths[row]].tolist()
        wanted = ngram_guesses(known, int(limit[row]), max_ngram=largest, min_ngram=smallest)
        assert proposal.tokens[row, : int(proposal.length[row])].tolist() == wanted, f"after {known}"


@pytest.mark.parametrize(
    ("known", "guesses"),
    [
        ([5], []),
        ([5, 6], []),
        ([5, 5], [5, 5, 5, 5, 5]),
        ([1, 2, 3, 1, 2], [3, 1, 2, 3, 1]),
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], [4, 9, 1, 2, 4]),  # the latest of two matches of two tokens
        ([7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2], [3, 9, 1, 2, 4]),  # the longer match, though it is older
    ],
)
def test_examples(known, guesses):
    tokens = np.zeros((1, WIDTH), np.int32)
    tokens[0, : len(known)] = known
    proposal = propose(ngram(max_ngram=3), tokens, np.array([len(known)], np.int32), np.array([K], np.int32))
    assert proposal.tokens[0, : int(proposal.length[0])].tolist() == guesses


def test_what_lies_past_the_row_is_not_matched():
    tokens = np.full((1, WIDTH), 3, np.int32)
    tokens[0, :4] = [3, 1, 2, 0]
    proposal = propose(ngram(), tokens, np.array([4], np.int32), np.array([K], np.int32))
    assert int(proposal.length[0]) == 0

"""Log-probabilities, and what surrounds the tokens."""

import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once
from toys import CAPACITY, MIXED, NONE, PARAMS, PROMPT_LENGTHS, PROMPTS, ROWS, guesser, run

from specdec_jax import RULES
from specdec_jax.testing import history_logits, reference


@pytest.mark.parametrize("name", ["none", "draft_model", "ngram"])
@pytest.mark.parametrize("rule", at_once(RULES, ["greedy", "block", "coupled"]))
def test_logprobs_are_those_of_the_emitted_tokens(rule, name):
    out = run(rule, NONE if name == "none" else guesser(name), eos=(9,))
    raw, sampled = np.asarray(out.raw.logprobs.raw), np.asarray(out.raw.logprobs.sampled)
    values = [np.broadcast_to(np.asarray(field), ROWS) for field in MIXED]
    for row, new in enumerate(out.rows):
        tokens = PROMPTS[row, : PROMPT_LENGTHS[row]].tolist()
        temperature, top_k, top_p, min_p = (value[row].item() for value in values)
        for place, token in enumerate(new):
            logits = history_logits(PARAMS, tokens).astype(np.float64)
            wanted = logits[token] - np.log(np.exp(logits).sum())
            assert raw[row, place] == pytest.approx(wanted, abs=1e-5)
            p = reference.distribution(logits, 0.0 if rule == "greedy" else temperature, top_k, top_p, min_p)
            assert sampled[row, place] == pytest.approx(np.log(p[token]), abs=1e-5)
            tokens.append(token)
        assert (raw[row, len(new) :] == 0).all()
        assert (sampled[row, len(new) :] == 0).all()


def test_tokens_are_zero_past_a_rows_length():
    out = run("block", guesser("draft_model"), eos=(9,)).raw
    assert out.tokens.shape == (ROWS, CAPACITY)
    past = np.arange(CAPACITY)[None, :] >= np.asarray(out.lengths)[:, None]
    assert (np.asarray(out.tokens)[past] == 0).all()
    assert out.tokens.dtype == out.lengths.dtype == jnp.int32


def test_without_a_drafter_every_round_is_one_token():
    out = run("block")
    np.testing.assert_array_equal(out.raw.stats.rounds, out.raw.lengths)
    assert out.raw.stats.drafted_at.shape == (ROWS, 0)
    assert np.isnan(out.raw.summary()["acceptance_rate"])

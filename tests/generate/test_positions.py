"""Ends of the row: capacity, the target's range of positions, and a drafter whose range is shorter."""

import numpy as np
import pytest
from marks import at_once
from toys import CAPACITY, COLD, NONE, PROMPT_LENGTHS, ROWS, V, greedy_walk, guesser, run

from specdec_jax import DRAFTERS, FinishReason, draft_model, early_exit, feature_head
from specdec_jax.testing import history_head, history_model

SHORT = 14


@pytest.mark.parametrize("name", at_once(["none", *DRAFTERS], ["none", "ngram", "draft_model"]))
def test_row_ends_with_the_targets_positions(name):
    target = history_model(V, max_positions=SHORT)
    out = run("block", NONE if name == "none" else guesser(name), target=target, sampling=COLD, limit=10**9)
    assert out.rows == [greedy_walk(row, SHORT - PROMPT_LENGTHS[row]) for row in range(ROWS)]
    assert out.reasons == [FinishReason.CAPACITY] * ROWS


@pytest.mark.parametrize("rule", at_once(["block", "coupled"], ["coupled"]))
@pytest.mark.parametrize(
    ("drafter", "last"),
    [
        pytest.param(draft_model(history_model(V, max_positions=SHORT)), SHORT, id="draft_model"),
        pytest.param(early_exit(history_model(V, max_positions=SHORT)), SHORT, id="early_exit"),
        pytest.param(feature_head(history_head(V, max_positions=SHORT)), SHORT + 1, id="feature_head"),
    ],
)
def test_drafter_of_shorter_range_stops_and_the_row_goes_on(rule, drafter, last):
    drafter = guesser("draft_model")._replace(drafter=drafter)
    plain = run(rule, sampling=COLD, limit=10**9)
    out = run(rule, drafter, drafter.same, sampling=COLD, limit=10**9)
    assert out.rows == plain.rows
    assert [len(row) for row in out.rows] == (CAPACITY - PROMPT_LENGTHS).tolist()
    # The last guess comes after ``last`` tokens, so a row that knows n tokens gets last + 1 - n guesses in all.
    assert (np.asarray(out.raw.stats.accepted) < last + 1 - PROMPT_LENGTHS).all()
    assert (np.asarray(out.raw.stats.accepted) > 0).all()


@pytest.mark.parametrize("length", [CAPACITY - 1, CAPACITY])
def test_prompt_that_fills_its_row(length):
    prompts = np.random.default_rng(0).integers(0, V, (ROWS, CAPACITY)).astype(np.int32)
    lengths = np.full(ROWS, length, np.int32)
    out = run("block", guesser("draft_model"), prompts=prompts, lengths=lengths)
    assert out.reasons == [FinishReason.CAPACITY] * ROWS
    assert [len(row) for row in out.rows] == [CAPACITY - length] * ROWS
    none = run("block", guesser("draft_model"), prompts=prompts, lengths=lengths, limit=0)
    assert none.reasons == [FinishReason.LENGTH] * ROWS


def test_long_limit_and_full_row_agree_on_what_came_first():
    left = CAPACITY - PROMPT_LENGTHS
    for limit, reason in (
        (left - 1, FinishReason.LENGTH),
        (left, FinishReason.LENGTH),
        (left + 1, FinishReason.CAPACITY),
    ):
        assert run("block", guesser("ngram"), limit=limit).reasons == [reason] * ROWS

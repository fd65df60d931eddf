"""Simulated acceptance: counts by the closed forms, and nothing that could be taken for text."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest
from marks import at_once
from programs import quick

from specdec_jax import RULES, Costs, Drafter, GenerateConfig, draft_model, ngram
from specdec_jax.bench import SimulatedCost, measure_costs, simulate, simulated
from specdec_jax.bench.costs import fitted, probed_lengths
from specdec_jax.testing import markov_model, random_logits
from specdec_jax.theory import expected_rounds, expected_tokens

V, ROWS, TOKENS = 5, 256, 40
TARGET, PARAMS = markov_model(V), random_logits(0, V, V)
CONFIG = GenerateConfig(capacity=64, draft_length=3, prefill_chunk=8)
DRAFTER = draft_model(TARGET)
PROMPTS, LENGTHS = np.ones((ROWS, 8), np.int32), np.full(ROWS, 8, np.int32)


@pytest.fixture(scope="module", autouse=True)
def quick_programs():
    """Compiled as quickly as can be, and once for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        usual: Any = simulated._simulate
        quickly = quick(usual.__wrapped__, static_argnames=("target", "drafter", "config"))
        patch.setattr(simulated, "_simulate", quickly)
        yield


def counted(alpha: float, draft_length: int, drafter: Drafter = DRAFTER, params: Any = PARAMS):
    return simulate(
        TARGET,
        PARAMS,
        drafter,
        params,
        PROMPTS,
        LENGTHS,
        alpha=alpha,
        draft_length=draft_length,
        config=CONFIG,
        max_new_tokens=TOKENS,
        key=jax.random.key(0),
    )


@pytest.mark.parametrize(
    ("alpha", "draft_length"), at_once([(0.0, 3), (0.4, 3), (0.8, 2), (0.8, 3), (1.0, 3), (0.8, 0)], [(0.8, 3)])
)
def test_rounds_are_those_of_the_closed_form(alpha, draft_length):
    """Of the law of n rounds the mean is known; ROWS of them stay within five standard errors of it."""
    found = counted(alpha, draft_length)
    assert (found.lengths == TOKENS).all()
    rounds = np.asarray(found.stats.rounds)
    error = 5 * rounds.std() / np.sqrt(ROWS)
    assert rounds.mean() == pytest.approx(expected_rounds(alpha, draft_length, TOKENS), abs=error + 1e-9)
    assert not found.stats.drafted_at[:, draft_length:].any()


def test_a_drafter_that_finds_nothing_is_counted_as_if_it_had():
    found = counted(1.0, 3, ngram(min_ngram=4), None)
    assert (found.stats.rounds == TOKENS // 4).all()


def test_no_text_comes_out_and_no_rule_of_that_name():
    assert {field.name for field in dataclasses.fields(counted(0.4, 3))} == {"lengths", "stats"}
    assert not any("simul" in name for name in RULES)
    cost = SimulatedCost(alpha=0.5, draft_length=3, block_efficiency=2.0, round_seconds=0.1)
    assert json.loads(json.dumps(cost._asdict()))["simulated"] is True


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": 1.5, "draft_length": 3}, "alpha is 1.5; expected a probability, from 0 to 1"),
        ({"alpha": 0.5, "draft_length": 4}, "draft_length is 4; expected 0 to config.draft_length, 3"),
    ],
)
def test_impossible_points(values, message):
    with pytest.raises(ValueError, match=message):
        counted(**values)


def test_costs_are_fitted_to_rounds():
    widths = (1, 4, 8)
    true = Costs(0.2, [1.0, 1.5, 2.5])
    assert probed_lengths(widths) == [0, 1, 3, 4, 7]
    seconds = {guesses: true.of_round(guesses, widths) for guesses in probed_lengths(widths)}
    found = fitted(seconds, widths)
    assert found.draft_step == pytest.approx(0.2)
    np.testing.assert_allclose(found.verify, true.verify)
    faster = fitted(seconds | {3: 1.4, 7: 2.0}, widths)
    assert faster.draft_step == 0, "a step never costs less than nothing"
    with pytest.raises(ValueError, match="a pass would cost nothing; measure more of them"):
        fitted({0: -0.1, 1: 1.0, 3: 1.0}, (1, 4))


def test_costs_of_a_pair(monkeypatch):
    """Where a round of k guesses takes 1 + k / 10 seconds, and half a second more at the second width."""

    def timed(runs, repeats):
        assert repeats == 3
        counted = {name: int(once().stats.rounds.max()) for name, once in runs.items()}
        lengths = {name: 0 if name == "empty" else int(name.strip("()").split(", ")[1]) for name in runs}
        costs = Costs(0.1, [1.0, 1.5])
        return {name: [9 + counted[name] * costs.of_round(lengths[name], CONFIG.widths)] * 3 for name in runs}

    monkeypatch.setattr(simulated, "in_turns", timed)
    found, rounds = measure_costs(
        TARGET, PARAMS, DRAFTER, PARAMS, batch=ROWS, config=CONFIG, alphas=(0.5,), rounds=24, repeats=3
    )
    assert [(one.alpha, one.draft_length) for one in rounds] == [(0.0, 0), (0.0, 1), (0.0, 3), (0.5, 3)]
    assert [one.block_efficiency for one in rounds[:3]] == [1.0] * 3
    assert rounds[3].block_efficiency == pytest.approx(expected_tokens(0.5, 3), rel=0.05)
    assert found.draft_step == pytest.approx(0.1)
    np.testing.assert_allclose(found.verify, [1.0, 1.5])


def test_more_rounds_than_the_capacity_holds():
    with pytest.raises(ValueError, match=r"99 rounds give up to 99 tokens; expected at most 56, what prompts of 8 tok"):
        measure_costs(TARGET, PARAMS, DRAFTER, PARAMS, batch=2, config=CONFIG, rounds=99, repeats=1)

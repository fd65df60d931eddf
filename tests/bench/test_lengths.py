"""Forecasts from counts, by hand."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick

from specdec_jax import Costs, GenerateConfig, draft_model
from specdec_jax.bench import by_length, lengths
from specdec_jax.bench.lengths import forecasts
from specdec_jax.state import Stats
from specdec_jax.testing import markov_model

COMPILED: Any = lengths._with_length
QUICKLY = quick(COMPILED.__wrapped__, static_argnames=("target", "drafter", "config"))


def counts(rounds, drafted_at, accepted_at) -> Stats:
    def row(count) -> jax.Array:
        return jnp.asarray([count], jnp.int32)

    return Stats(row(rounds), row(sum(drafted_at)), row(sum(accepted_at)), row(drafted_at), row(accepted_at))


def test_what_was_not_made_gives_and_costs_nothing():
    found = forecasts(counts(10, [6, 4], [3, 2]), Costs(0.5, [2.0, 3.0]), (1, 3))
    assert [one.draft_length for one in found] == [0, 1, 2]
    assert [one.tokens for one in found] == pytest.approx([1, 1.3, 1.5])
    # In six rounds of ten a guess and the wider pass, in four of them one guess more.
    assert [one.cost for one in found] == pytest.approx([1, 1 + 0.6 * 1.5 / 2, 1 + (0.6 * 1.5 + 0.4 * 0.5) / 2])
    assert [one.speedup for one in found] == pytest.approx([one.tokens / one.cost for one in found])


def test_a_drafter_of_which_nothing_is_kept():
    found = forecasts(counts(10, [10, 10], [0, 0]), Costs(0.1, [1.0, 1.0]), (1, 3))
    assert [one.speedup for one in found] == pytest.approx([1, 1 / 1.1, 1 / 1.2])


PAIR = markov_model(4), np.log(np.array([[1, 2, 0, 0], [2, 1, 0, 0], [0, 0, 1, 2], [0, 0, 2, 1]]) + 1e-9)
DRAFT = np.array(PAIR[1])
DRAFT[2:] = PAIR[1][2:, [0, 1, 3, 2]]  # right about what follows 0 and 1, wrong about what follows 2 and 3


def by(prompts, **more):
    return by_length(
        *PAIR,
        draft_model(PAIR[0]),
        DRAFT,
        prompts,
        Costs(0.1, [1.0, 1.0]),
        config=GenerateConfig(capacity=16, draft_length=1, prefill_chunk=4),
        eos_tokens=(),
        max_new_tokens=6,
        repeats=1,
        **more,
    )


@pytest.mark.heavy
@pytest.mark.usefixtures("quick_programs")
def test_forecasts_are_made_from_other_prompts_than_they_are_compared_with(monkeypatch):
    def in_turns(runs, repeats):
        for run in runs.values():
            run()
        return {name: [1.0 if name.endswith("reading") else 2.0] * repeats for name in runs}

    monkeypatch.setattr(lengths, "_with_length", QUICKLY)
    monkeypatch.setattr(importlib.import_module("specdec_jax.bench.contest"), "in_turns", in_turns)
    found = by([[0], [2], [1], [3], [0]])
    assert (found.counted, found.compared) == (3, 2)
    assert found.alpha_at == [1]
    assert found.forecasts[1].tokens == 2
    assert found.measured["1"].block_efficiency == 1
    assert by([[2], [0]]).measured["1"].block_efficiency == 2
    others = [[2], [3], [2, 3], [3, 3], [2, 2, 3], [3, 2, 3]]
    drawn = by([one for other in others for one in (other, [0])], temperature=1.0)  # two thirds are kept, on average
    assert 0 < drawn.alpha_at[0] < 1


def test_one_prompt_is_not_both_counted_and_compared():
    with pytest.raises(ValueError, match="got 1 prompt; expected 2 or more: alpha is counted on others"):
        by([[0]])

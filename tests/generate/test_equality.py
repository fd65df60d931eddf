"""What must come out token for token: greedy and coupled output with any drafter, any K, any batch, and with none."""

import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once
from toys import (
    COLD,
    GUESSERS,
    KEYS,
    MIXED,
    PROMPT_LENGTHS,
    PROMPTS,
    ROWS,
    cut,
    greedy_walk,
    guesser,
    one_row,
    run,
)

from specdec_jax import DRAFTERS, RULES, SamplingParams

# A program for one guess a round, and one for up to eight that is given fewer as a value.
LENGTHS = [{"draft_length": 1}, *({"draft_length": 8, "at_most": K} for K in (2, 5, 8))]
each_length = pytest.mark.parametrize("lengths", at_once(LENGTHS, LENGTHS[1::2]), ids=["1", "2", "5", "8"])


@pytest.fixture(scope="module")
def coupled_alone():
    return run("coupled").rows


def test_every_drafter_can_be_built():
    assert DRAFTERS.keys() <= GUESSERS.keys(), "add the new drafter to GUESSERS"


@pytest.mark.parametrize("rule", RULES)
def test_no_drafter_and_temperature_zero_is_the_greedy_walk(rule):
    out = run(rule, sampling=COLD, eos=(3,))
    assert out.rows == [cut(greedy_walk(row, 20), (3,)) for row in range(ROWS)]


@each_length
@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_output_is_the_targets_own(name, lengths):
    drafter = guesser(name)
    for drafter_params in (drafter.same, drafter.weak):
        out = run("greedy", drafter, drafter_params, **lengths)
        assert out.rows == [greedy_walk(row, 20) for row in range(ROWS)]


@each_length
@pytest.mark.parametrize("name", DRAFTERS)
def test_coupled_output_belongs_to_target_and_key(name, lengths, coupled_alone):
    drafter = guesser(name)
    for drafter_params in (drafter.same, drafter.weak):
        assert run("coupled", drafter, drafter_params, **lengths).rows == coupled_alone


def test_coupled_output_does_not_depend_on_the_batch(coupled_alone):
    """Without a drafter; with one, as for every rule: see test_contract.py."""
    for row in range(ROWS):
        assert run("coupled", **one_row(row)).rows == [coupled_alone[row]]


def test_coupled_output_does_not_depend_on_the_slot(coupled_alone):
    order = np.array([3, 0, 5, 1, 4, 2])
    out = run(
        "coupled",
        GUESSERS["draft_model"],
        prompts=PROMPTS[order],
        lengths=PROMPT_LENGTHS[order],
        keys=KEYS[order],
        sampling=SamplingParams(*(jnp.asarray(value)[order] for value in MIXED)),
    )
    assert out.rows == [coupled_alone[row] for row in order]

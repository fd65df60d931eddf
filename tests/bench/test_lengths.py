"""Forecasts from counts, by hand."""

import jax
import jax.numpy as jnp
import pytest

from specdec_jax import Costs
from specdec_jax.bench.lengths import forecasts
from specdec_jax.state import Stats


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

"""The adaptive controller: what it chooses, in regimes whose best choice is known."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once

from specdec_jax import Costs, adaptive
from specdec_jax.control import Outcome

K, WIDTHS = 7, (1, 4, 8)
CONTROLLERS = {goal: adaptive(goal) for goal in ("last_row", "throughput")}
CHEAP = Costs(0.05, [1.0, 1.1, 1.2]).checked(WIDTHS)
DEAR = Costs(0.25, [1.0, 1.3, 1.9]).checked(WIDTHS)
FREE = Costs(0.0, [1.0, 1.3, 1.6]).checked(WIDTHS)
LONG = 10_000  # tokens that are left


def all_made(limit, round_):
    return limit


@pytest.fixture(params=list(CONTROLLERS))
def goal(request):
    return request.param


@cache
def compiled(goal):
    controller = CONTROLLERS[goal]
    return jax.jit(controller.choose, static_argnums=3), jax.jit(controller.update)


def play(costs, alphas, rounds, state=None, made=all_made, left=None, goal="throughput"):
    """Limits of so many rounds, and the state after them: row b keeps a guess with ``alphas[b]``."""
    choose, update = compiled(goal)
    rng = np.random.default_rng(0)
    rows = len(alphas)
    left = jnp.full(rows, LONG) if left is None else jnp.asarray(left)
    state = CONTROLLERS[goal].init(rows, K) if state is None else state
    limits = []
    for round_ in range(rounds):
        limit = choose(costs, state, left, WIDTHS)
        drafted = np.array([made(n, round_) for n in limit.tolist()], np.int32)
        kept = np.cumprod(rng.random((rows, K)) < np.array(alphas)[:, None], axis=1).sum(1, dtype=np.int32)
        accepted = np.minimum(kept, drafted)
        left = jnp.where(left > 0, jnp.maximum(left - accepted - 1, 1), 0)
        state = update(state, Outcome(limit, jnp.asarray(drafted), jnp.asarray(accepted), left))
        assert len(set(limit.tolist())) == 1
        limits.append(int(limit[0]))
    return limits, state


def verify_cost(costs):
    return lambda length: float(costs.verify[np.searchsorted(WIDTHS, length + 1)])


def speed(limits, alpha, rows, costs, goal):
    """Tokens that rounds of such lengths give in the time of a plain step, on the draws of `play`: to the slowest row,
    or to all.
    """
    kept = np.cumprod(np.random.default_rng(0).random((len(limits), rows, K)) < alpha, axis=2).sum(2)
    tokens = 1 + np.minimum(kept, np.array(limits)[:, None])
    gained = tokens.sum(axis=0).min() if goal == "last_row" else tokens.sum(axis=0).mean()
    c, v = float(costs.draft_step), verify_cost(costs)
    return gained / sum(length * c + v(length) for length in limits)


@pytest.mark.parametrize("alpha", at_once([0.3, 0.6, 0.8, 0.95], [0.3, 0.8]))
@pytest.mark.parametrize("costs", [CHEAP, DEAR, FREE], ids=["cheap", "dear", "free"])
def test_it_comes_near_to_the_best_fixed_length(alpha, costs, goal):
    rows, rounds = 32, 200
    limits, _ = play(costs, [alpha] * rows, rounds, goal=goal)
    best = max(speed([length] * rounds, alpha, rows, costs, goal) for length in range(K + 1))
    # Which length is best is known only afterwards, on these draws.
    assert speed(limits, alpha, rows, costs, goal) > max(0.93 * best, 0.97)


@pytest.mark.parametrize("costs", [CHEAP, DEAR, FREE], ids=["cheap", "dear", "free"])
@pytest.mark.parametrize("rows", at_once([1, 16], [16]))
def test_a_useless_drafter_loses_two_steps_and_a_hundredth_of_the_time(rows, costs, goal):
    limits, _ = play(costs, [0.0] * rows, 600, goal=goal)
    assert limits[0] > 0
    c, v = float(costs.draft_step), verify_cost(costs)
    lost = np.cumsum([limit * c + v(limit) - 1 for limit in limits])
    assert (lost <= 2 + 0.01 * np.arange(1, len(limits) + 1) + 1e-3).all()
    assert max(limits[-100:]) > 0  # it is tried for ever: the text may change


def test_it_comes_back_when_the_drafter_does(goal):
    _, state = play(DEAR, [0.0], 60, goal=goal)
    limits, _ = play(DEAR, [0.95], 120, state, goal=goal)
    assert limits[:5] == [0] * 5
    assert np.mean(limits[-20:]) > 3


def test_a_place_where_nothing_is_guessed_costs_nothing():
    """A drafter that finds something in one round of four, and then is right: it is always asked."""
    limits, _ = play(FREE, [0.9], 80, made=lambda limit, round_: limit if round_ % 4 == 0 else 0)
    assert min(limits) > 0
    assert np.mean(limits[40:]) > 5


def test_wider_passes_are_worth_it_only_for_what_is_likely_kept():
    """At this acceptance the step from four tokens to eight does not pay, three guesses do."""
    limits, _ = play(Costs(0.01, [1.0, 1.05, 3.0]).checked(WIDTHS), [0.7] * 16, 30)
    assert limits[5:] == [3] * 25


def test_rows_that_ended_do_not_count():
    """One bad row goes on after thirty-one good ones ended."""
    good, bad = [0.95] * 31, [0.0]
    limits, state = play(DEAR, good + bad, 40)
    assert min(limits[5:]) >= 3
    limits, _ = play(DEAR, good + bad, 30, state, left=[0] * 31 + [LONG])
    assert 0 in limits


def test_a_batch_takes_as_long_as_its_slowest_row():
    """Where ended rows make room for others, a row that keeps nothing weighs no more than another; else it decides."""
    good, bad = [0.95] * 15, [0.0]
    assert min(play(DEAR, good + bad, 40)[0][5:]) >= 3
    limits, _ = play(DEAR, good + bad, 400, goal="last_row")
    assert np.mean(np.array(limits[10:]) > 0) < 0.02
    limits, _ = play(DEAR, good + bad, 40, left=[LONG] * 15 + [50], goal="last_row")
    assert min(limits[5:]) >= 3


def test_an_unknown_goal():
    with pytest.raises(ValueError, match="goal is 'speed'; expected one of last_row, throughput"):
        adaptive("speed")


def test_nothing_is_learnt_from_rows_that_ran_out(goal):
    _, update = compiled(goal)
    state = CONTROLLERS[goal].init(2, K)
    seven, two = (jnp.array([n, n], jnp.int32) for n in (7, 2))
    state = update(state, Outcome(seven, drafted=seven, accepted=two, left=jnp.array([3, 0])))
    np.testing.assert_array_equal(state.kept, [[1, 1, 0, 0, 0, 0, 0], [0] * K])
    np.testing.assert_array_equal(state.tried, [[1, 1, 1, 0, 0, 0, 0], [0] * K])
    np.testing.assert_array_equal(state.made, [[1] * K, [0] * K])


def test_costs_are_traced(goal):
    counted = []

    @jax.jit
    def count(costs, state, left):
        counted.append(1)
        return CONTROLLERS[goal].choose(costs, state, left, WIDTHS)

    state, left = CONTROLLERS[goal].init(1, K), jnp.full(1, LONG)
    found = {int(count(costs.checked(WIDTHS), state, left)[0]) for costs in (CHEAP, DEAR, Costs(9.0, [1, 1, 1]))}
    assert len(counted) == 1
    assert len(found) > 1

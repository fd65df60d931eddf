"""The test of counts: rare cells, its size and its power, all against simulations of their own."""

import numpy as np
import pytest

from specdec_jax.testing import SIGNIFICANCE, chi_square_p_value
from specdec_jax.testing.count_test import POWER, count_test
from specdec_jax.testing.statistics import pool

SOME_RARE = [np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.995, 0.005]), np.array([0.98] + [0.02 / 20] * 20)]
RARE = np.array([1 - 0.05 / 1024, 0.05 / 1024])
DRAWS = 1024


@pytest.mark.parametrize("chances", [*SOME_RARE, RARE], ids=["even", "sharp", "many rare", "one rare"])
def test_true_counts_are_refused_as_rarely_as_promised(chances):
    """The limit of the chi-square distribution refuses the sharp one nine times too often, the last 490 times."""
    test = count_test(chances, DRAWS)
    counts = np.random.default_rng(7).multinomial(DRAWS, chances, 200_000)
    least = test.null[-int(SIGNIFICANCE * (1 + len(test.null)))]
    assert (test.statistic(counts) > least * (1 + 1e-9)).mean() < 2 * SIGNIFICANCE


@pytest.mark.parametrize("chances", [*SOME_RARE, RARE], ids=["even", "sharp", "many rare", "one rare"])
def test_the_stated_power(chances):
    test = count_test(chances, DRAWS)
    shift = test.smallest_bias()
    assert 0 < shift < 0.2
    biased = np.array([chances[0] - shift, *chances[1:] * (1 + shift / chances[1:].sum())])
    counts = np.random.default_rng(7).multinomial(DRAWS, biased, 3000)
    refused = np.mean([test.p_value(each) <= SIGNIFICANCE for each in counts])
    assert refused == pytest.approx(POWER, abs=0.04)


def test_four_times_the_draws_find_half_the_bias():
    few, many = (count_test(SOME_RARE[0], draws).smallest_bias() for draws in (2000, 8000))
    assert many == pytest.approx(few / 2, rel=0.05)


def test_one_draw_of_what_is_rare_proves_nothing_and_of_what_is_impossible_all():
    test = count_test(RARE, DRAWS)
    assert test.p_value(np.array([DRAWS, 0])) == 1
    assert test.p_value(np.array([DRAWS - 1, 1])) == pytest.approx(0.05, abs=0.005)
    assert test.p_value(np.array([DRAWS - 3, 3])) < SIGNIFICANCE
    certain = count_test(np.array([1.0, 0.0]), DRAWS)
    assert certain.p_value(np.array([DRAWS, 0])) == 1
    assert certain.p_value(np.array([DRAWS - 1, 1])) == 0


@pytest.mark.parametrize("chances", [[1.0], [1.0, 0.0]])
def test_the_power_of_a_certain_law(chances):
    """What is drawn beside it is impossible: the bias is found when that comes once."""
    shift = count_test(np.array(chances), DRAWS).smallest_bias()
    assert 1 - (1 - shift) ** DRAWS == pytest.approx(POWER)


def test_too_few_draws_find_no_bias():
    assert count_test(np.array([0.5, 0.5]), 3).smallest_bias() == 1


def test_no_cell_that_is_left_expects_few():
    assert pool(np.array([9.0, 6, 5])).tolist() == [False] * 3
    assert pool(np.array([9.0, 1, 6, 2])).tolist() == [False, True, True, True]
    assert pool(np.array([9.0, 2, 6, 4])).tolist() == [False, True, False, True]
    assert pool(np.array([4.0, 0.05])).tolist() == [True, True]


def test_a_rare_cell_does_not_stand_alone_in_the_chi_square_test():
    """One draw of a rare token once gave 2e-5."""
    assert chi_square_p_value([1023, 1], RARE) == 1, "a single cell is left"
    chances = [0.6, 0.4 - 0.05 / 1024, 0.05 / 1024]
    assert chi_square_p_value([614, 409, 1], chances) == pytest.approx(1, abs=0.05)
    assert chi_square_p_value([700, 323, 1], chances) < 1e-6
    assert chi_square_p_value([600, 423, 1], [0.6, 0.4, 0]) == 0

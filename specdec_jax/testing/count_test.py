"""Counts against known probabilities of which some are small: a test of exact size, and its power, by simulation.

The chi-square distribution is that of Pearson's statistic only where all cells expect many draws. In the tail,
where tests of 1e-4 look, a cell that expects five exceeds it many times too often: the statistic is simulated instead.
"""

from typing import NamedTuple

import numpy as np

from .._typing import Bool, Float, Int
from .checks import SIGNIFICANCE
from .statistics import pool

POWER = 0.8
"""Chance to find the smallest bias that is stated."""
_SAMPLES, _CHUNK = 100_000, 10_000
_TRIALS, _HALVINGS = 2_000, 12


class CountTest(NamedTuple):
    """A test of the counts of ``draws`` draws over C cells, made by `count_test`."""

    draws: int
    possible: Bool[np.ndarray, "C"]
    groups: Int[np.ndarray, "C G"]
    """1 where a cell is of a group: those of few expected draws are one group, every other cell is one of its own."""
    expected: Float[np.ndarray, "G"]
    """Draws in each group."""
    null: Float[np.ndarray, "N"]
    """The statistic of draws that are as they should be, ascending."""

    def statistic(self, counts: Int[np.ndarray, "*n C"]) -> Float[np.ndarray, "*n"]:
        """Pearson's, over the groups."""
        return _pearson(counts @ self.groups, self.expected)

    def p_value(self, counts: Int[np.ndarray, "C"]) -> float:
        """The chance of counts at least this far from their expectation; 0 where the impossible was drawn."""
        if counts[~self.possible].any():
            return 0.0
        # Counts are whole numbers, so statistics that are equal but for rounding are common.
        least = self.statistic(counts) * (1 - 1e-9)
        return float(1 + len(self.null) - np.searchsorted(self.null, least)) / (1 + len(self.null))

    def smallest_bias(self) -> float:
        """In total variation: what the likeliest group must lose to all others, in proportion, to be found with
        probability `POWER`. 1 where even the loss of all of it would not be."""
        chances = self.expected / self.draws
        if len(chances) == 1:  # whatever else is drawn is impossible, and once is enough
            return 1 - (1 - POWER) ** (1 / self.draws)
        likeliest = int(chances.argmax())
        direction = chances / (1 - chances[likeliest])
        direction[likeliest] = -1.0
        limit = self.null[-int(SIGNIFICANCE * (1 + len(self.null)))] * (1 + 1e-9)

        def found(shift: float) -> bool:
            biased = np.maximum(chances + shift * direction, 0)
            # The same noise for every shift, so that more of it is found more often.
            counts = np.random.default_rng(1).multinomial(self.draws, biased / biased.sum(), _TRIALS)
            return bool((_pearson(counts, self.expected) > limit).mean() >= POWER)

        low, high = 0.0, float(chances[likeliest])
        if not found(high):
            return 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if found(middle) else (middle, high)
        return high


def count_test(chances: Float[np.ndarray, "C"], draws: int) -> CountTest:
    """The test for cells of these probabilities, which sum to 1.

    Cells that expect fewer than five draws are counted together, with as many more as it takes to expect five; where
    that would be all of them, the likeliest stands against the rest.
    """
    possible = chances > 0
    expected = chances / chances.sum() * draws
    together = possible & pool(np.where(possible, expected, np.inf))
    if (together == possible).all() and possible.sum() > 1:
        together[expected.argmax()] = False
    apart = np.eye(len(chances), dtype=np.int64)[:, possible & ~together]
    groups = np.concatenate([apart, together.astype(np.int64)[:, None]], axis=1) if together.any() else apart
    expected = expected @ groups
    rng = np.random.default_rng(0)
    null = [
        _pearson(rng.multinomial(draws, expected / expected.sum(), _CHUNK), expected) for _ in range(_SAMPLES // _CHUNK)
    ]
    return CountTest(draws, possible, groups, expected, np.sort(np.concatenate(null)))


def _pearson(counts: Int[np.ndarray, "*n G"], expected: Float[np.ndarray, "G"]) -> Float[np.ndarray, "*n"]:
    return np.asarray(((counts - expected) ** 2 / expected).sum(-1))

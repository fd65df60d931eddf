"""The chi-square test of counts against known probabilities."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc

from .._typing import Array, Bool, Float


def pool(expected: Float[np.ndarray, "C"], least: float = 5.0) -> Bool[np.ndarray, "C"]:
    """Which cells to count together, so that none that is left expects fewer than ``least``: all that do, and the next
    smallest for as long as they expect fewer even together. Where even all expect fewer, that is all of them."""
    order = np.argsort(expected)
    number = int((expected < least).sum())
    if number:
        number = max(number, 1 + int(np.searchsorted(np.cumsum(expected[order]), least)))
    pooled = np.zeros(expected.shape, bool)
    pooled[order[:number]] = True
    return pooled


def chi_square_p_value(
    counts: Sequence | np.ndarray | Array, probabilities: Sequence | np.ndarray | Array, *, min_expected: float = 5.0
) -> float:
    """The chance of counts at least this far from their expectation (Pearson's statistic).

    Cells that expect fewer than ``min_expected`` are pooled into one, with the next smallest until it expects as many.
    A count where the probability is zero gives 0. Where a single cell is left, nothing can be told, and that gives 1.
    """
    observed = np.asarray(counts, np.float64).ravel()
    probabilities = np.asarray(probabilities, np.float64).ravel()
    if observed.shape != probabilities.shape:
        raise ValueError(f"got {observed.size} counts and {probabilities.size} probabilities; expected as many")
    if not np.isclose(probabilities.sum(), 1, atol=1e-5):
        raise ValueError(f"the probabilities sum to {probabilities.sum()}; expected 1: no outcome may be left out")
    if observed[probabilities == 0].any():
        return 0.0
    possible = probabilities > 0
    expected = (probabilities / probabilities.sum() * observed.sum())[possible]
    observed = observed[possible]
    rare = pool(expected, min_expected)
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    freedom = len(expected) - 1
    if freedom == 0:
        return 1.0
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(gammaincc(jnp.float32(freedom / 2), jnp.float32(statistic / 2)))


def sequence_p_value(
    tokens: np.ndarray, lengths: np.ndarray, law: Mapping[tuple[int, ...], float], *, min_expected: float = 5.0
) -> float:
    """`chi_square_p_value` of generated rows, tokens [N, S] of which the first lengths [N] count, against ``law``.

    A sequence that the law does not know gives 0.
    """
    width = max(len(sequence) for sequence in law)
    if np.max(lengths) > width:
        return 0.0
    # One row for each outcome, with -1 past its end, so that np.unique counts whole sequences.
    rows = np.where(np.arange(width) < np.asarray(lengths)[:, None], np.asarray(tokens)[:, :width], -1)
    found, counts = np.unique(rows, axis=0, return_counts=True)
    number = {tuple(int(t) for t in row if t >= 0): int(n) for row, n in zip(found, counts, strict=True)}
    if not number.keys() <= law.keys():
        return 0.0
    return chi_square_p_value([number.get(s, 0) for s in law], list(law.values()), min_expected=min_expected)

"""Whether a real model's next tokens come as often as they should, and how small a bias that would have shown."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from .._typing import PRNGKeyArray, PyTree
from ..control import constant
from ..generate import generate
from ..lm import LanguageModel
from ..sampling import SamplingParams, probabilities
from ..state import GenerateConfig
from .checks import SIGNIFICANCE
from .equality import Pair
from .statistics import chi_square_p_value

POWER = 0.8
"""Chance to find the smallest bias that is stated."""


class Cell(NamedTuple):
    """Texts that begin alike: a whole likely text, or what else could follow a beginning."""

    tokens: tuple[int, ...]
    rest: bool
    """Of all that begins so, whatever is no cell of its own."""
    probability: float


class NextTokens(NamedTuple):
    """What `next_tokens` found."""

    cells: list[Cell]
    counts: list[int]
    draws: int
    p_value: float
    """Of Pearson's chi-square, cells of fewer than five expected draws pooled."""
    smallest: float
    """The smallest bias that would have been found with probability `POWER`, in total variation: so much probability
    moved from the likeliest cell to all others."""

    @property
    def holds(self) -> bool:
        return self.p_value > SIGNIFICANCE


def next_tokens(
    pair: Pair,
    prompt: list[int],
    *,
    key: PRNGKeyArray,
    sampling: SamplingParams,
    config: GenerateConfig,
    draws: int,
    batch: int,
    depth: int = 3,
    width: int = 4,
) -> NextTokens:
    """Draw the next ``depth`` tokens ``draws`` times, and compare with the target's own probabilities.

    Args:
        pair: target and drafter.
        prompt: token ids.
        key: of all draws.
        sampling: scalars.
        config: of the program; one whose draft length is at least ``depth`` accepts and refuses at every place.
        draws: rounded up to whole batches.
        batch: rows of a program.
        depth: tokens.
        width: likeliest tokens at each place that have cells of their own, a remainder beside them.
    """
    draws = -(-draws // batch) * batch
    prompts = np.tile(np.asarray(prompt, np.int32), (batch, 1))
    rows = []
    for number in range(draws // batch):
        out = generate(
            *pair,
            prompts,
            np.full(batch, len(prompt)),
            key=jax.random.fold_in(key, number),
            sampling=sampling,
            config=config,
            max_new_tokens=depth,
            controller=constant(),
        )
        rows.append(np.asarray(out.tokens)[:, :depth])
    cells = likely_cells(pair.target, pair.target_params, prompt, sampling, depth, width)
    counts = count(cells, np.concatenate(rows))
    chances = [cell.probability for cell in cells]
    return NextTokens(cells, counts, draws, chi_square_p_value(counts, chances), smallest_bias(chances, draws))


def likely_cells(
    model: LanguageModel, params: PyTree, prompt: list[int], sampling: SamplingParams, depth: int, width: int
) -> list[Cell]:
    """All that can follow, divided by the likeliest tokens at each place; probabilities sum to 1."""
    feed = jax.jit(model.apply)
    slots = -(-(len(prompt) + depth) // 64) * 64
    beginnings, cells = {(): 1.0}, []
    for _ in range(depth):
        tokens = np.array([[*prompt, *beginning] for beginning in beginnings], np.int32)
        rows = len(tokens)
        logits, _, _ = feed(params, tokens, model.init_cache(rows, slots), jnp.zeros(rows, jnp.int32))
        p = np.asarray(probabilities(logits[:, -1:].astype(jnp.float32), sampling.broadcast(rows))[:, 0], np.float64)
        longer = {}
        for (beginning, chance), row in zip(beginnings.items(), p / p.sum(-1, keepdims=True), strict=True):
            top = [int(token) for token in np.argsort(-row, kind="stable")[:width] if row[token] > 0]
            longer |= {(*beginning, token): chance * row[token] for token in top}
            rest = chance * (1 - row[top].sum())
            if (row > 0).sum() > len(top):
                cells.append(Cell(beginning, True, max(float(rest), 0.0)))
        beginnings = longer
    return [*(Cell(beginning, False, float(chance)) for beginning, chance in beginnings.items()), *cells]


def count(cells: list[Cell], rows: np.ndarray) -> list[int]:
    """In which cells rows [N, depth] fall."""
    place = {(cell.tokens, cell.rest): number for number, cell in enumerate(cells)}
    beginnings = {cell.tokens[:size] for cell in cells for size in range(len(cell.tokens) + 1)}
    counts = [0] * len(cells)
    for row in rows.tolist():
        size = 0
        while size < len(row) and tuple(row[: size + 1]) in beginnings:
            size += 1
        counts[place[tuple(row[:size]), size < len(row)]] += 1
    return counts


def smallest_bias(chances: list[float], draws: int) -> float:
    """In total variation, if the likeliest cell loses to all others in proportion: found with probability `POWER`.

    The statistic is then noncentral chi-square with noncentrality N d^2 / (p (1 - p)) for a shift of d.
    """
    freedom = max(sum(chance * draws >= 5 for chance in chances) + any(c * draws < 5 for c in chances) - 1, 1)
    limit = stats.chi2.isf(SIGNIFICANCE, freedom)
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if stats.ncx2.sf(limit, freedom, middle) < POWER else (low, middle)
    p = max(chances)
    return math.sqrt(high * p * (1 - p) / draws)

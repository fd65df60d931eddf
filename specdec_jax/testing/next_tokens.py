"""Whether a real model's next tokens come as often as they should, and how small a bias that would have shown."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import PRNGKeyArray, PyTree
from ..control import constant
from ..generate import generate
from ..lm import LanguageModel
from ..sampling import SamplingParams, probabilities
from ..state import FinishReason, GenerateConfig
from .checks import SIGNIFICANCE
from .count_test import count_test
from .equality import Pair

DEPTH = 3
"""Tokens that are drawn each time."""


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
    """Of `count_test`, in which true draws fall below `SIGNIFICANCE` just so rarely."""
    compared: int
    """Cells of that test, in which rare ones are counted together."""
    smallest: float
    """The smallest bias that would have been found with probability `POWER`, in total variation: so much probability
    moved from the likeliest of the cells compared to all others. What moves within one of them does not show."""

    drafted: int
    accepted: int
    """Guesses that were made and kept in all draws. Where none was kept, this says nothing of who made them."""

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
    depth: int = DEPTH,
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

    Raises:
        ValueError: where rows have no room for ``depth`` tokens, or end before, as they do where logits are NaN.
    """
    if room_after(pair.target, prompt, config) < depth:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens, after which a row has room for "
            f"{room_after(pair.target, prompt, config)}; expected room for {depth}: a shorter prompt or more capacity"
        )
    draws = -(-draws // batch) * batch
    prompts = np.tile(np.asarray(prompt, np.int32), (batch, 1))
    rows, drafted, accepted = [], 0, 0
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
        if (short := np.asarray(out.lengths) < depth).any():
            reason = FinishReason(int(np.asarray(out.finish_reason)[short][0]))
            raise ValueError(
                f"{short.sum()} of {batch} rows ended before they had {depth} tokens, for {reason.name}; expected a "
                "target whose logits are neither NaN nor infinite there"
            )
        rows.append(np.asarray(out.tokens)[:, :depth])
        drafted, accepted = drafted + int(out.stats.drafted.sum()), accepted + int(out.stats.accepted.sum())
    cells = likely_cells(pair.target, pair.target_params, prompt, sampling, depth, width)
    counts = count(cells, np.concatenate(rows))
    test = count_test(np.array([cell.probability for cell in cells]), draws)
    p_value = test.p_value(np.array(counts))
    return NextTokens(cells, counts, draws, p_value, len(test.expected), test.smallest_bias(), drafted, accepted)


def room_after(model: LanguageModel, prompt: list[int], config: GenerateConfig) -> int:
    """Tokens that a row can hold after a prompt."""
    most = config.capacity if model.max_positions is None else min(config.capacity, model.max_positions)
    return most - len(prompt)


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
            order = np.argsort(-row, kind="stable")
            top = [int(token) for token in order[:width] if row[token] > 0]
            longer |= {(*beginning, token): chance * row[token] for token in top}
            # Of probability 0, too, where nothing else can follow: should it come, it must be counted.
            if len(order) > len(top):
                cells.append(Cell(beginning, True, float(chance * row[order[len(top) :]].sum())))
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

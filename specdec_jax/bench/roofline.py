"""The least time that decoding could take: the bytes that it must read, at the rate at which memory gives them."""

import statistics
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import PyTree
from ..drafters import Drafter
from ..lm import LanguageModel
from .contest import Answered
from .timing import in_turns

_ROW = 1024
"""Numbers that are summed to one: the rows can be divided over cores."""


def bandwidth(size: int, *, repeats: int = 7) -> float:
    """Bytes a second at which a plain sum reads an array of ``size`` bytes, at least 4096: the median."""
    rows = max(size // (4 * _ROW), 1)
    numbers = jnp.ones((rows, _ROW), jnp.float32)
    add = jax.jit(lambda numbers: numbers.sum(axis=1))
    jax.block_until_ready(add(numbers))
    seconds = in_turns({"sum": lambda: add(numbers)}, repeats)["sum"]
    return numbers.nbytes / statistics.median(seconds)


def weight_bytes(params: PyTree) -> int:
    """What a pass reads of a model's parameters: not of an embedding beside a head, of which it looks up a few rows."""
    if not isinstance(params, dict):
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    looked_up = {"embedding"} if "head" in params else set()
    return sum(weight_bytes(value) for name, value in params.items() if name not in looked_up)


def slot_bytes(model: LanguageModel) -> float:
    """What a token takes in a cache."""
    slots = 1024
    cache = jax.eval_shape(lambda: jax.tree.leaves(model.init_cache(1, slots)))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in cache) / slots


def bytes_read(
    answered: Iterable[Answered],
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
) -> float:
    """What the rounds of these generations had to read; reading the prompts is not in it.

    The target's weights in each round of the longest row, the drafter's for each guess of the row with most, and each
    row's own tokens in the target's cache, as many as it had on average, by a model whose layers attend to all of them.
    """
    weights, slot = weight_bytes(target_params), slot_bytes(target)
    step = 0.0 if drafter is None else drafter.reads * weight_bytes(drafter_params)
    total = 0.0
    for prompts, generation in answered:
        # Wide enough for bytes: counts are int32.
        rounds, drafted = (np.asarray(count, np.int64) for count in (generation.stats.rounds, generation.stats.drafted))
        held = np.array([len(prompt) for prompt in prompts]) + np.asarray(generation.lengths) / 2
        total += rounds.max() * weights + drafted.max() * step + (rounds * held).sum() * slot
    return float(total)

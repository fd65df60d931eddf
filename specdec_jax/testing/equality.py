"""Whether generations that must be the same tokens are, on a real model, where rounding can turn a tie over."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, PyTree
from ..control import Controller, constant
from ..drafters import Drafter
from ..generate import generate
from ..lm import LanguageModel
from ..sampling import SamplingParams, probabilities
from ..sampling.draw import position_noise
from ..state import FinishReason, GenerateConfig, Generation


class Pair(NamedTuple):
    """A target and who drafts for it."""

    target: LanguageModel
    target_params: PyTree
    drafter: Drafter | None
    drafter_params: PyTree


class Answer(NamedTuple):
    """A row's new tokens, why it ended after them, and how many guesses were made and kept."""

    tokens: list[int]
    finish_reason: FinishReason
    drafted: int = 0
    accepted: int = 0


class Difference(NamedTuple):
    """The first token of a row that is another."""

    row: int
    place: int
    """Of the new tokens."""
    got: int
    wanted: int
    gap: float
    """By how much the wanted token wins over the one that was got, in a pass over that one place."""
    rounding: float
    """By how much the same gap differs between passes of several shapes: what nothing but rounding changes."""

    @property
    def is_tie(self) -> bool:
        """Whether rounding explains it."""
        return abs(self.gap) <= 2 * self.rounding


class Ending(NamedTuple):
    """Answers of a row that end at another place or for another reason."""

    row: int
    got: Answer
    wanted: Answer

    def __str__(self) -> str:
        return (
            f"row {self.row} ended after {len(self.got.tokens)} tokens ({self.got.finish_reason.name}) instead of "
            f"{len(self.wanted.tokens)} ({self.wanted.finish_reason.name})"
        )


class Equality(NamedTuple):
    """What `equality` found."""

    rows: int
    tokens: int
    """Compared, up to each row's first difference."""
    differences: list[Difference]
    endings: list[Ending]
    """Also past a tie: there are no end tokens here, so where a row ends does not follow from its tokens."""
    drafted: int
    accepted: int
    """Guesses that were made and kept. Where none was kept, this says nothing of who made them."""

    @property
    def holds(self) -> bool:
        """Whether there was something to compare, and rows are equal but for ties."""
        return self.tokens > 0 and not self.endings and all(difference.is_tie for difference in self.differences)


def answers(
    pair: Pair,
    prompts: np.ndarray,
    lengths: np.ndarray,
    *,
    rule: str,
    keys: Array,
    temperature: float,
    config: GenerateConfig,
    max_new_tokens: int,
    batch: int,
    controller: Controller | None = None,
) -> list[Answer]:
    """The answer of each row, ``batch`` rows at a time; the last batch is filled up with its first row.

    All guesses that can be made are, unless a ``controller`` decides.
    """
    settings = dataclasses.replace(config, rule=rule)
    rows: list[Answer] = []
    for first in range(0, len(lengths), batch):
        chosen = [*range(first, min(first + batch, len(lengths)))]
        filled = np.array(chosen + [first] * (batch - len(chosen)))
        out: Generation = generate(
            *pair,
            prompts[filled],
            lengths[filled],
            key=keys[filled],
            sampling=SamplingParams(temperature=temperature),
            config=settings,
            max_new_tokens=max_new_tokens,
            controller=constant() if controller is None else controller,
        )
        tokens, new, reasons = (np.asarray(part) for part in (out.tokens, out.lengths, out.finish_reason))
        drafted, accepted = np.asarray(out.stats.drafted).tolist(), np.asarray(out.stats.accepted).tolist()
        rows += [
            Answer(tokens[row, : new[row]].tolist(), FinishReason(reasons[row]), drafted[row], accepted[row])
            for row in range(len(chosen))
        ]
    return rows


def equality(
    pair: Pair,
    prompts: np.ndarray,
    lengths: np.ndarray,
    got: list[Answer],
    wanted: list[Answer],
    *,
    keys: Array | None,
    temperature: float,
    width: int,
) -> Equality:
    """Compare rows, and measure at each first difference how near to a tie it was.

    Args:
        pair: whose target says so.
        prompts, lengths: what the rows continue.
        got, wanted: the answer of each row, without end tokens.
        keys: of the rows under the coupled rule, which adds their noise; None under the greedy one.
        temperature: of the rows.
        width: tokens of a whole block, K + 1.
    """
    differences, endings, compared = [], [], 0
    for row, answered in enumerate(zip(got, wanted, strict=True)):
        mine, theirs = (answer.tokens for answer in answered)
        place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
        compared += min(len(mine), len(theirs)) if place is None else place + 1
        if (len(mine), answered[0].finish_reason) != (len(theirs), answered[1].finish_reason):
            endings.append(Ending(row, *answered))
        if place is None:
            continue
        before = [*prompts[row, : lengths[row]].tolist(), *theirs[:place]]
        noise = None
        if keys is not None:
            noise = position_noise(keys[row : row + 1], jnp.asarray([len(before)]), pair.target.vocab_size)[0]
        gaps = [
            float(one[theirs[place]] - one[mine[place]]) for one in _scores(pair, before, width, temperature, noise)
        ]
        differences.append(Difference(row, place, mine[place], theirs[place], gaps[0], rounding=max(gaps) - min(gaps)))
    made, kept = sum(one.drafted for one in got), sum(one.accepted for one in got)
    return Equality(len(got), compared, differences, endings, made, kept)


def _scores(pair: Pair, before: list[int], width: int, temperature: float, noise: Array | None) -> list[Array]:
    """What the next token is the largest of: from a pass over the last of ``before`` alone, then from others that say
    the same but for rounding. One shape more may happen to round alike; of four it is not likely."""
    model, params = pair.target, pair.target_params
    feed = jax.jit(model.apply)
    last = len(before) - 1
    cache = model.init_cache(1, -(-(len(before) + width) // 64) * 64)
    whole, _, read = feed(params, jnp.asarray([before], jnp.int32), cache, jnp.zeros(1, jnp.int32))
    logits = [whole[0, -1]]
    # What follows in a block changes nothing but the shape of the pass.
    for block in (width, 2, 1):
        tokens = jnp.asarray([[before[-1], *[0] * (block - 1)]], jnp.int32)
        logits.insert(0, feed(params, tokens, read, jnp.asarray([last]))[0][0, 0])
    if noise is None:
        return logits
    values = SamplingParams(temperature=temperature).broadcast(1)
    return [jnp.log(probabilities(one[None, None].astype(jnp.float32), values)[0, 0]) + noise for one in logits]

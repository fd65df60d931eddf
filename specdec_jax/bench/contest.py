"""Contestants that answer the same batches of prompts in turns."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import NamedTuple

import jax
import numpy as np

from .._typing import PyTree
from ..control import Controller, Costs, adaptive
from ..drafters import Drafter
from ..generate import generate
from ..lm import LanguageModel
from ..sampling import SamplingParams
from ..state import GenerateConfig, Generation
from .timing import in_turns

_ADAPTIVE = adaptive()

Prompts = Sequence[Sequence[int]]
"""Token ids of each row of a batch."""

Contestant = Callable[[Prompts, int], list[list[int]]]
"""``answer(prompts, most new tokens) -> new ids of each row``."""


class Answered(NamedTuple):
    """A generation and what it went on from."""

    prompts: Prompts
    generation: Generation


class Entry(NamedTuple):
    """How a contestant did over all batches."""

    tokens: int
    seconds: float
    """Sum over batches of the median over repeats."""
    tokens_per_second: float
    slowest: float
    """Tokens a second over all batches in the worst repeat."""
    fastest: float
    """... and in the best."""
    equal: float
    """Share of its tokens that are those of the first contestant: place by place, over the longer of the two."""


def in_batches(prompts: Prompts, batch: int) -> list[Prompts]:
    """Each prompt once, in batches of so many rows; the first ones again where the last batch has room."""
    count = -(-len(prompts) // batch)
    rows = list(islice(cycle(prompts), count * batch))
    return [rows[first : first + batch] for first in range(0, len(rows), batch)]


def speculative(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    *,
    config: GenerateConfig,
    eos_tokens: Sequence[int],
    controller: Controller = _ADAPTIVE,
    costs: Costs | None = None,
    temperature: float = 0.0,
    seen: Callable[[Answered], None] = lambda answered: None,
) -> Contestant:
    """`generate`, by default greedily and with as many guesses as pay at ``costs``; ``seen`` gets each generation."""

    def run(prompts: np.ndarray, lengths: np.ndarray, limit: int) -> Generation:
        return generate(
            target,
            target_params,
            drafter,
            drafter_params,
            prompts,
            lengths,
            key=jax.random.key(0),
            sampling=SamplingParams(temperature=temperature),
            config=config,
            max_new_tokens=limit,
            eos_tokens=eos_tokens,
            controller=controller,
            costs=costs,
        )

    return padded(run, config.capacity, seen)


def padded(
    run: Callable[[np.ndarray, np.ndarray, int], Generation],
    capacity: int,
    seen: Callable[[Answered], None] = lambda answered: None,
) -> Contestant:
    """A contestant of ``run(prompts [B, capacity], lengths [B], most new tokens)``.

    All prompts have the shape of the capacity: one program a batch size, which reads prompts in as many chunks as the
    longest has.
    """

    def answer(prompts: Prompts, limit: int) -> list[list[int]]:
        rows = np.zeros((len(prompts), capacity), np.int32)
        for row, prompt in zip(rows, prompts, strict=True):
            row[: len(prompt)] = prompt
        generation = run(rows, np.asarray([len(prompt) for prompt in prompts]), limit)
        seen(Answered(prompts, generation))
        tokens, lengths = np.asarray(generation.tokens), np.asarray(generation.lengths)
        return [row[:length].tolist() for row, length in zip(tokens, lengths, strict=True)]

    return answer


def contest(
    contestants: Mapping[str, Contestant],
    batches: Sequence[Prompts],
    *,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Entry]:
    """Let all contestants answer all batches in turns, after one call of each in which its programs are compiled."""
    for name, answer in contestants.items():
        progress(f"warming up {name}")
        answer(batches[0], 2)
    seconds: dict[str, list[list[float]]] = {name: [] for name in contestants}
    answers: dict[str, list[list[int]]] = {name: [] for name in contestants}
    for place, prompts in enumerate(batches, 1):
        progress(f"batch {place} of {len(batches)}")
        last: dict[str, list[list[int]]] = {}

        def run(name: str, prompts=prompts, last=last):
            last[name] = contestants[name](prompts, max_new_tokens)

        times = in_turns({name: lambda name=name, run=run: run(name) for name in contestants}, repeats)
        for name in contestants:
            seconds[name].append(times[name])
            answers[name] += last[name]
    first = answers[next(iter(contestants))]
    return {name: _entry(answers[name], first, seconds[name]) for name in contestants}


def _entry(answers: list[list[int]], first: list[list[int]], seconds: list[list[float]]) -> Entry:
    """Of answers row by row, and of seconds by batch and repeat."""
    tokens = sum(map(len, answers))
    median = sum(map(statistics.median, seconds))
    repeats = [sum(turn) for turn in zip(*seconds, strict=True)]
    return Entry(tokens, median, tokens / median, tokens / max(repeats), tokens / min(repeats), _equal(answers, first))


def _equal(answers: list[list[int]], first: list[list[int]]) -> float:
    pairs = list(zip(answers, first, strict=True))
    same = sum(a == b for a, b in chain.from_iterable(zip(one, other, strict=False) for one, other in pairs))
    longest = sum(max(len(one), len(other)) for one, other in pairs)
    return same / longest if longest else 1.0

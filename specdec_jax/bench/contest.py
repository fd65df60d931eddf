"""Contestants that answer the same prompts, greedily and in turns."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from .._typing import PyTree
from ..control import Costs
from ..drafters import Drafter
from ..generate import generate
from ..lm import LanguageModel
from ..sampling import SamplingParams
from ..state import GenerateConfig, Generation
from .timing import in_turns

Contestant = Callable[[Sequence[int], int], list[int]]
"""``answer(prompt ids, most new tokens) -> new ids``, the likeliest at each step."""


class Entry(NamedTuple):
    """How a contestant did over all prompts."""

    tokens: int
    seconds: float
    """Sum over prompts of the median over repeats."""
    tokens_per_second: float
    equal: float
    """Share of its tokens that are those of the first contestant: place by place, over the longer of the two."""


def speculative(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    *,
    config: GenerateConfig,
    eos_tokens: Sequence[int],
    costs: Costs | None = None,
    seen: Callable[[Generation], None] = lambda generation: None,
) -> Contestant:
    """`generate` for one row at temperature 0, as many guesses as pay at ``costs``; ``seen`` gets each generation."""

    def run(prompts: np.ndarray, lengths: np.ndarray, limit: int) -> Generation:
        return generate(
            target,
            target_params,
            drafter,
            drafter_params,
            prompts,
            lengths,
            key=jax.random.key(0),
            sampling=SamplingParams(temperature=0.0),
            config=config,
            max_new_tokens=limit,
            eos_tokens=eos_tokens,
            costs=costs,
        )

    return one_row(run, config.capacity, seen)


def one_row(
    run: Callable[[np.ndarray, np.ndarray, int], Generation],
    capacity: int,
    seen: Callable[[Generation], None] = lambda generation: None,
) -> Contestant:
    """A contestant of ``run(prompts [1, capacity], lengths [1], most new tokens)``.

    All prompts have the shape of the capacity: one program, which reads a prompt in as many chunks as it has.
    """

    def answer(prompt: Sequence[int], limit: int) -> list[int]:
        prompts = np.zeros((1, capacity), np.int32)
        prompts[0, : len(prompt)] = prompt
        generation = run(prompts, np.asarray([len(prompt)]), limit)
        seen(generation)
        return np.asarray(generation.tokens)[0, : int(generation.lengths[0])].tolist()

    return answer


def contest(
    contestants: Mapping[str, Contestant],
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Entry]:
    """Let all contestants answer all prompts in turns, after a warm-up in which programs are compiled."""
    for name, answer in contestants.items():
        progress(f"warming up {name}")
        answer(prompts[0], 2)
    seconds = dict.fromkeys(contestants, 0.0)
    answers: dict[str, list[list[int]]] = {name: [] for name in contestants}
    for place, prompt in enumerate(prompts, 1):
        progress(f"prompt {place} of {len(prompts)}")
        last: dict[str, list[int]] = {}

        def run(name: str, prompt=prompt, last=last):
            last[name] = contestants[name](prompt, max_new_tokens)

        times = in_turns({name: lambda name=name, run=run: run(name) for name in contestants}, repeats)
        for name in contestants:
            seconds[name] += statistics.median(times[name])
            answers[name].append(last[name])
    first = answers[next(iter(contestants))]
    return {name: _entry(answers[name], first, seconds[name]) for name in contestants}


def _entry(answers: list[list[int]], first: list[list[int]], seconds: float) -> Entry:
    tokens = sum(map(len, answers))
    pairs = list(zip(answers, first, strict=True))
    same = sum(a == b for one, other in pairs for a, b in zip(one, other, strict=False))
    longest = sum(max(len(one), len(other)) for one, other in pairs)
    return Entry(tokens, seconds, tokens / seconds, same / longest if longest else 1.0)

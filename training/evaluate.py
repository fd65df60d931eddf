"""What a drafter is worth: in real generation, and by what its acceptance on held-out text predicts."""

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import PyTree
from specdec_jax.control import constant
from specdec_jax.drafters import Drafter
from specdec_jax.generate import generate
from specdec_jax.lm import LanguageModel
from specdec_jax.models import Loaded
from specdec_jax.sampling import SamplingParams
from specdec_jax.state import GenerateConfig, Generation, summary
from specdec_jax.theory import tokens_of


class Question(NamedTuple):
    """A prompt to measure on."""

    category: str
    token_ids: list[int]


class Drafting(NamedTuple):
    """Who guesses for whom: the target as it has to be built for this drafter."""

    target: LanguageModel
    drafter: Drafter
    params: PyTree


def in_generation(
    target: Loaded,
    drafting: Drafting,
    questions: Sequence[Question],
    *,
    temperature: float,
    config: GenerateConfig,
    max_new_tokens: int = 128,
    seed: int = 0,
    repeats: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Answer every question with and without the drafter, in turns, one at a time.

    Returns:
        ``block_efficiency``, ``acceptance_rate`` and ``accepted_at`` over all questions, ``by_category`` the same for
        each category, ``tokens_per_second`` and ``plain_tokens_per_second``, of each answer the median of its
        ``repeats``, and ``speedup``. Compiling is left out.
    """
    plain = Drafting(target.model, None, None)  # pyright: ignore[reportArgumentType]
    ways = {"plain": plain, "drafted": drafting}
    seconds: dict[str, float] = dict.fromkeys(ways, 0.0)
    tokens: dict[str, int] = dict.fromkeys(ways, 0)
    rows: dict[str, list[Generation]] = defaultdict(list)

    def ask(way: Drafting, question: Question, place: int, limit: int) -> Generation:
        return _answer(
            target, way, question, temperature, config, limit, jax.random.fold_in(jax.random.key(seed), place)
        )

    for way in ways.values():
        jax.block_until_ready(ask(way, questions[0], 0, 1))
    for place, question in enumerate(questions):
        for name, way in ways.items():
            times = []
            for _ in range(repeats):
                started = time.perf_counter()
                generation = jax.block_until_ready(ask(way, question, place, max_new_tokens))
                times.append(time.perf_counter() - started)
            seconds[name] += statistics.median(times)
            tokens[name] += int(generation.lengths[0])
            if name == "drafted":
                rows[question.category].append(generation)
        progress(place + 1, len(questions))
    speeds = {name: tokens[name] / seconds[name] for name in ways}
    return {
        "temperature": temperature,
        "draft_length": config.draft_length,
        "rule": config.rule,
        "questions": len(questions),
        "max_new_tokens": max_new_tokens,
        **_metrics([one for group in rows.values() for one in group]),
        "by_category": {category: _metrics(group) for category, group in rows.items()},
        "tokens_per_second": speeds["drafted"],
        "plain_tokens_per_second": speeds["plain"],
        "speedup": speeds["drafted"] / speeds["plain"],
    }


def predicted_speedup(alphas: Sequence[float], draft_length: int, cost: Mapping[str, float]) -> float:
    """Against plain decoding, from the acceptance of each guess and what it costs to make and to check them, as if each
    guess were kept independently of the others.

    Args:
        alphas: of the guesses in turn; those past the ones that were measured count as the last of them.
        draft_length: guesses of a round.
        cost: ``draft_step``, of a guess, and ``verify``, of checking all of them, in steps of the target.
    """
    alphas = [*alphas, *alphas[-1:] * draft_length][:draft_length]
    return tokens_of(alphas) / (draft_length * cost["draft_step"] + cost["verify"])


def _answer(
    target: Loaded, way: Drafting, question: Question, temperature: float, config: GenerateConfig, limit: int, key
) -> Generation:
    prompt = np.zeros((1, config.capacity), np.int32)
    prompt[0, : len(question.token_ids)] = question.token_ids
    return generate(
        way.target,
        target.params,
        way.drafter,
        way.params,
        prompt,
        [len(question.token_ids)],
        key=key,
        sampling=SamplingParams(temperature=temperature),
        config=config,
        max_new_tokens=limit,
        eos_tokens=() if target.tokenizer is None else target.tokenizer.eos_ids,
        controller=constant(),  # what is measured is the drafter, at every place of a block
    )


def _metrics(generations: Sequence[Generation]) -> dict[str, Any]:
    stats = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(one.stats for one in generations))
    found = summary(stats, jnp.concatenate([one.lengths for one in generations]))
    return {name: _known(found[name]) for name in ("block_efficiency", "acceptance_rate", "accepted_at")}


def _known(value: Any) -> Any:
    """With None for the ratio of nothing to nothing: JSON has no NaN."""
    if isinstance(value, list):
        return [_known(one) for one in value]
    return None if math.isnan(value) else value

"""What a round costs, against the forward passes that it cannot do without."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._typing import PyTree
from ..control import constant
from ..drafters import Drafter
from ..generate import generate
from ..lm import LanguageModel
from ..sampling import SamplingParams
from ..state import GenerateConfig
from .timing import in_turns


class Pass(NamedTuple):
    """A forward pass that a drafter makes, on the drafter's params."""

    model: LanguageModel
    tokens: int
    """T, of one row."""
    times: int
    """In a round."""


class RoundCost(NamedTuple):
    """Medians, in seconds a round."""

    round_seconds: float
    """From whole generations: the time of a long one less that of an empty one, over its rounds."""
    verify_seconds: float
    """A pass of the target over K + 1 tokens on a cache of the same size."""
    draft_seconds: float
    """The drafter's own passes."""
    ratio: float
    """round / (verify + draft)"""


def round_cost(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    prompt: list[int],
    *,
    config: GenerateConfig,
    max_new_tokens: int,
    repeats: int,
    passes: Sequence[Pass] = (),
) -> RoundCost:
    """Time rounds of K guesses and passes in turns; ``passes`` are those that the drafter makes in a round."""
    config = dataclasses.replace(config, verify_widths=(config.draft_length + 1,))
    prompts = jnp.zeros((1, config.capacity), jnp.int32).at[0, : len(prompt)].set(jnp.asarray(prompt))

    def run(tokens: int):
        return generate(
            target,
            target_params,
            drafter,
            drafter_params,
            prompts,
            [len(prompt)],
            key=jax.random.key(0),
            sampling=SamplingParams(temperature=0.0),
            config=config,
            max_new_tokens=tokens,
            controller=constant(),
        )

    K = 0 if drafter is None else config.draft_length
    rounds = int(run(max_new_tokens).stats.rounds[0])
    slots = config.capacity + 8 * (K // 8 + 1)
    verify = Passes(target, target_params, K + 1, slots, len(prompt))
    runs = {"long": lambda: run(max_new_tokens), "empty": lambda: run(0), "verify": lambda: verify(rounds)}
    drafting = [(Passes(one.model, drafter_params, one.tokens, slots, len(prompt)), one.times) for one in passes]
    if drafting:
        runs["draft"] = lambda: [run(rounds * times) for run, times in drafting]
    for once in runs.values():
        jax.block_until_ready(once())
    seconds = {name: statistics.median(times) for name, times in in_turns(runs, repeats).items()}

    whole = (seconds["long"] - seconds["empty"]) / rounds
    parts = [seconds["verify"] / rounds, seconds.get("draft", 0.0) / rounds]
    return RoundCost(whole, *parts, ratio=whole / sum(parts))


class Passes:
    """Forward passes over T tokens of one row, one after the other on one cache, which each is given to write in."""

    def __init__(self, model: LanguageModel, params: PyTree, T: int, slots: int, length: int):
        self._apply = jax.jit(model.apply, donate_argnums=2)
        self._params = params
        self._tokens = jnp.zeros((1, T), jnp.int32)
        self._cache = model.init_cache(1, slots)
        self._lengths = jnp.asarray([length], jnp.int32)

    def __call__(self, count: int):
        logits = None
        for _ in range(count):
            logits, _, self._cache = self._apply(self._params, self._tokens, self._cache, self._lengths)
        return logits

"""What a round costs, against the forward passes that it cannot do without."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array, PyTree
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
    """A pass of the target over K + 1 tokens, where the rounds were in a cache of the same size."""
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
    once = run(max_new_tokens)
    # Passes stand where the rounds did: attention costs what it has to look at.
    rounds, grown = int(once.stats.rounds[0]), int(once.lengths[0])

    def of(model: LanguageModel, params: PyTree, tokens: int) -> Passes:
        return Passes(model, params, tokens, slots=config.slots(drafting=K > 0), length=len(prompt), grows=grown)

    verify = of(target, target_params, K + 1)
    runs = {"long": lambda: run(max_new_tokens), "empty": lambda: run(0), "verify": lambda: verify(rounds)}
    drafting = [(of(one.model, drafter_params, one.tokens), one.times) for one in passes]
    if drafting:
        runs["draft"] = lambda: [run(rounds * times) for run, times in drafting]
    for once in runs.values():
        jax.block_until_ready(once())
    seconds = {name: statistics.median(times) for name, times in in_turns(runs, repeats).items()}

    whole = (seconds["long"] - seconds["empty"]) / rounds
    parts = [seconds["verify"] / rounds, seconds.get("draft", 0.0) / rounds]
    return RoundCost(whole, *parts, ratio=whole / sum(parts))


class Passes:
    """Forward passes over T tokens of one row, one after the other in one program, on one cache.

    The first starts at slot ``length``, and the last ``grows`` slots further on.
    """

    def __init__(self, model: LanguageModel, params: PyTree, T: int, *, slots: int, length: int, grows: int = 0):
        def run(params: PyTree, cache: PyTree, count: Array):
            def one(i: Array, carry):
                # Other tokens each time, or the compiler might take what follows from them alone out of the loop.
                tokens = jnp.full((1, T), i % model.vocab_size, jnp.int32)
                at = jnp.asarray([length], jnp.int32) + i * grows // count
                logits, _, cache = model.apply(params, tokens, carry[0], at)
                return cache, logits

            shape = jax.eval_shape(lambda: one(jnp.int32(0), (cache, None))[1])
            return lax.fori_loop(0, count, one, (cache, jnp.zeros(shape.shape, shape.dtype)))

        self._run = jax.jit(run, donate_argnums=1)
        self._params = params
        self._cache = model.init_cache(1, slots)

    def __call__(self, count: int) -> Array:
        self._cache, logits = self._run(self._params, self._cache, jnp.int32(count))
        return logits

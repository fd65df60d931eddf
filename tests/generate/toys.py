"""The models, drafters and programs that the tests of `generate` share, so that each is compiled once."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from marks import at_once
from programs import quick

from specdec_jax import (
    DRAFTERS,
    RULES,
    Controller,
    Costs,
    Drafter,
    FinishReason,
    GenerateConfig,
    SamplingParams,
    constant,
    draft_model,
    early_exit,
    feature_head,
    generate,
    init,
    ngram,
    step,
)
from specdec_jax.testing import history_head, history_logits, history_model, random_logits

V = 16
TARGET = history_model(V)
PARAMS = random_logits(0, 97, V)
WEAK = (PARAMS + random_logits(1, 97, V, spread=0.7)).astype(np.float32)
DRAFT = draft_model(TARGET)


class Guesser(NamedTuple):
    """A drafter to sweep, and the params of it that guess like the target and unlike it."""

    drafter: Drafter | None
    same: Any
    weak: Any


GUESSERS = {
    "draft_model": Guesser(DRAFT, same=PARAMS, weak=WEAK),
    "early_exit": Guesser(early_exit(TARGET), same=PARAMS, weak=WEAK),
    "feature_head": Guesser(feature_head(history_head(V)), same=PARAMS, weak=WEAK),
    "ngram": Guesser(ngram(max_ngram=3), same=None, weak=None),
}
NONE = Guesser(None, None, None)
PAIRS = [(rule, name) for rule in RULES for name in DRAFTERS]
_EACH_ONCE = [*(pair for pair in PAIRS if pair[0] == "block"), ("greedy", "draft_model"), ("coupled", "draft_model")]
each_pair = pytest.mark.parametrize(("rule", "name"), at_once(PAIRS, _EACH_ONCE))
"""At once the default rule with every drafter, and a draft model with rules of the other kind; the rest with the heavy
tests: the rounds of the rules are the same but for verdicts, which tests/verify is about."""


def guesser(name: str) -> Guesser:
    assert name in GUESSERS, f"no test knows how to build the drafter {name!r}: add it to GUESSERS"
    return GUESSERS[name]


ROWS, SLOTS, CAPACITY, K = 6, 9, 40, 3
CONSTANT = constant()
WIDTHS = (1, K + 1)
"""Verify widths, where tests are about several; the others have one, for programs of one compile in half the time."""
COSTS = Costs(0.1, [1.0, 1.3]).checked(WIDTHS)
"""At which it pays to guess if the guesses are good."""
PROMPT_LENGTHS = np.array([1, 2, 9, 5, 3, 6], np.int32)
# Few different tokens, so that n-grams match; a 0 past each row's length.
PROMPTS = np.random.default_rng(5).integers(0, 3, (ROWS, SLOTS)).astype(np.int32)
PROMPTS = np.where(np.arange(SLOTS) < PROMPT_LENGTHS[:, None], PROMPTS, 0)
KEYS = jax.random.split(jax.random.key(42), ROWS)
COLD = SamplingParams(temperature=0.0)
MIXED = SamplingParams(
    temperature=jnp.array([1.0, 0.0, 0.6, 1.0, 1.3, 1.0]),
    top_k=jnp.array([0, 0, 5, 0, 8, 0]),
    top_p=jnp.array([1.0, 1.0, 1.0, 0.8, 0.9, 1.0]),
    min_p=jnp.array([0.0, 0.0, 0.0, 0.0, 0.02, 0.1]),
)


def config(
    rule: str, draft_length: int = K, capacity: int = CAPACITY, verify_widths: tuple[int, ...] = ()
) -> GenerateConfig:
    return GenerateConfig(
        capacity, draft_length, rule, prefill_chunk=4, verify_widths=verify_widths or (draft_length + 1,)
    )


@partial(quick, static_argnames=("target", "drafter", "config", "controller"))
def _quick(
    target, params, drafter, drafter_params, prompts, lengths, key, sampling, config, limit, eos, controller, costs
):
    return generate(
        target,
        params,
        drafter,
        drafter_params,
        prompts,
        lengths,
        key=key,
        sampling=sampling,
        config=config,
        max_new_tokens=limit,
        eos_tokens=eos,
        controller=controller,
        costs=costs,
    )


@partial(quick, static_argnames=("target", "drafter", "config"))
def _quick_rounds(
    target, params, drafter, drafter_params, prompts, lengths, key, sampling, config, limit, eos, at_most
):
    """The same by `init` and `step`, with no more than ``at_most`` guesses in a round, which is traced."""
    state = init(
        target,
        params,
        drafter,
        drafter_params,
        prompts,
        lengths,
        key=key,
        sampling=sampling,
        config=config,
        max_new_tokens=limit,
        eos_tokens=eos,
    )

    def running(state):
        return (state.finish_reason == FinishReason.RUNNING).any()

    def body(state):
        return step(target, params, drafter, drafter_params, state, config=config, draft_length=at_most)[0]

    return lax.while_loop(running, body, state).generation(config.capacity)


class Output(NamedTuple):
    """A `Generation`, its rows as lists."""

    rows: list[list[int]]
    """Each row's new tokens."""
    reasons: list[int]
    raw: Any


def run(
    rule: str,
    guesser: Guesser = NONE,
    drafter_params: Any = None,
    *,
    target=TARGET,
    params=PARAMS,
    prompts=PROMPTS,
    lengths=PROMPT_LENGTHS,
    keys=KEYS,
    sampling=MIXED,
    limit: Any = 20,
    eos=(),
    config: Callable[..., GenerateConfig] = config,
    at_most: int | None = None,
    controller: Controller = CONSTANT,
    costs: Costs | None = None,
    **static,
) -> Output:
    """`generate` inside a jit of its own, on the toys unless told otherwise; ``at_most``: guesses in a round."""
    batch = len(lengths)
    if rule == "greedy":
        sampling = sampling._replace(temperature=jnp.zeros(batch))
    limit = np.broadcast_to(np.asarray(limit, np.int32), (batch,))
    eos = np.array([*eos, *[-1] * (8 - len(eos))], np.int32)
    # A drafter's params must not be what the target's are, lest a mix-up of the two goes unnoticed.
    arguments = (
        target,
        params,
        guesser.drafter,
        guesser.weak if drafter_params is None else drafter_params,
        jnp.asarray(prompts),
        jnp.asarray(lengths),
        keys,
        sampling.broadcast(batch),
        config(rule, **static),
        limit,
        eos,
    )
    generation = _quick(*arguments, controller, costs) if at_most is None else _quick_rounds(*arguments, at_most)
    assert at_most is None or not np.asarray(generation.stats.drafted_at)[:, at_most:].any()
    tokens, new = np.asarray(generation.tokens), np.asarray(generation.lengths)
    rows = [row[:n].tolist() for row, n in zip(tokens, new, strict=True)]
    return Output(rows, generation.finish_reason.tolist(), generation)


def one_row(row: int) -> dict[str, Any]:
    """The arguments of `run` for one row of the batch alone."""
    part = slice(row, row + 1)
    return {
        "prompts": PROMPTS[part],
        "lengths": PROMPT_LENGTHS[part],
        "keys": KEYS[part],
        "sampling": SamplingParams(*(jnp.asarray(value)[part] for value in MIXED)),
    }


def greedy_walk(row: int, count: int, params: np.ndarray = PARAMS) -> list[int]:
    """The likeliest continuation of a prompt, worked out without the library."""
    tokens = PROMPTS[row, : PROMPT_LENGTHS[row]].tolist()
    for _ in range(count):
        tokens.append(int(np.argmax(history_logits(params, tokens))))
    return tokens[PROMPT_LENGTHS[row] :]


def cut(tokens: list[int], eos) -> list[int]:
    """Up to the first end token, which stays."""
    for place, token in enumerate(tokens):
        if token in eos:
            return tokens[: place + 1]
    return tokens

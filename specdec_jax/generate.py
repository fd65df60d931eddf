"""Speculative generation as one compiled program: prefill, then rounds of propose, verify and commit."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from ._inputs import Inputs, prepare
from ._typing import PyTree
from .control import Controller, Costs, adaptive, estimate
from .drafters import Context, Drafter
from .lm import LanguageModel, prefill
from .loop import decode
from .sampling import SamplingParams
from .sharding import DATA, by_rows, check_rows
from .state import FinishReason, GenerateConfig, GenerateState, Generation, Logprobs, Stats
from .verify import RULES

_SAMPLING = SamplingParams()
_CONFIG = GenerateConfig()
_ADAPTIVE = adaptive()


def generate(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    prompts: ArrayLike,
    prompt_lengths: ArrayLike | Sequence[int],
    *,
    key: ArrayLike,
    sampling: SamplingParams = _SAMPLING,
    config: GenerateConfig = _CONFIG,
    max_new_tokens: ArrayLike | Sequence[int] | None = None,
    eos_tokens: ArrayLike | Sequence[int] = (),
    controller: Controller = _ADAPTIVE,
    costs: Costs | None = None,
    mesh: Mesh | None = None,
) -> Generation:
    """Continue each prompt with tokens distributed exactly as ``target`` alone would draw them.

    Args:
        target, target_params: the model whose distribution the output follows.
        drafter, drafter_params: who guesses; ``drafter=None`` is plain decoding through the same loop.
        prompts: token ids [B, P], padded on the right; what lies past a row's length is never read.
        prompt_lengths: tokens of each prompt [B], at least one.
        key: one key, folded with each row's index, or one key a row [B]. It is consumed.
        sampling: how tokens are drawn; scalars or one value a row. Under the rule greedy a temperature is refused, or
            taken for 0 where it is traced and cannot be looked at.
        config: what is static.
        max_new_tokens: one number or one a row [B]; by default a row goes on until it is full.
        eos_tokens: ids [E] of which any ends a row.
        controller: how many of the ``config.draft_length`` guesses a round may have. The default weighs what was kept
            so far, in all rows, against costs; with `constant` a row's tokens depend on no other row.
        costs: of a draft step and of a verify pass of each of ``config.widths``, see `bench.measure_costs`; by default
            they are estimated from the sizes of the parameters.
        mesh: devices to decode on, see `sharding.make_mesh`: rows are divided over its ``data`` axis, and the model
            over ``tensor`` as its parameters lie. The tokens are those of one device, where they do not depend on other
            rows: with `constant`, or under the coupled rule. An adaptive controller weighs the rows of its device.

    Compiled once for each target, drafter, controller, config and shape of the prompts. Lengths, keys, sampling values,
    limits, costs and end tokens (up to eight, then up to sixteen, ...) are traced: other values compile nothing. It may
    be called in ``jax.jit`` and under ``jax.vmap``; there, values cannot be looked at, so a row whose prompt, limit or
    sampling values are impossible ends at once as ``INVALID``.

    Raises:
        ValueError: before anything is compiled, for shapes that do not fit, an empty or overlong prompt, token ids
            outside the vocabulary, sampling values or costs out of range, or a drafter with another vocabulary.
    """
    inputs = prepare(target, drafter, prompts, prompt_lengths, key, sampling, config, max_new_tokens, eos_tokens)
    if costs is None:
        costs = estimate(target_params, drafter, drafter_params, inputs.prompts.shape[0], config.widths)
    costs = costs.checked(config.widths)
    if mesh is None:
        return _generate(target, target_params, drafter, drafter_params, inputs, config, controller, costs)
    check_rows(inputs.prompts.shape[0], mesh)
    return _generate_on(mesh, target, target_params, drafter, drafter_params, inputs, config, controller, costs)


@partial(jax.jit, static_argnames=("target", "drafter", "config", "controller"))
def _generate(
    target, target_params, drafter, drafter_params, inputs: Inputs, config, controller: Controller, costs: Costs
) -> Generation:
    state = _init(target, target_params, drafter, drafter_params, inputs, config)
    rule = RULES[config.rule]
    state = decode(rule, target, target_params, drafter, drafter_params, controller, costs, state, config)
    return state.generation(config.capacity)


_ROWS: Any = P(DATA)
_SHARED: Any = P()
ROWS_OF_INPUTS = Inputs(_ROWS, _ROWS, _ROWS, _ROWS, _ROWS, eos_tokens=_SHARED)
"""Which of the inputs are divided with the rows, for `sharding.by_rows`."""


@partial(jax.jit, static_argnames=("mesh", "target", "drafter", "config", "controller"))
def _generate_on(
    mesh, target, target_params, drafter, drafter_params, inputs: Inputs, config, controller: Controller, costs: Costs
) -> Generation:
    def run(target_params, drafter_params, inputs, costs):
        return _generate(target, target_params, drafter, drafter_params, inputs, config, controller, costs)

    rows = by_rows(run, mesh, (P(), P(), ROWS_OF_INPUTS, P()), P(DATA))
    return rows(target_params, drafter_params, inputs, costs)


def init(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    prompts: ArrayLike,
    prompt_lengths: ArrayLike | Sequence[int],
    *,
    key: ArrayLike,
    sampling: SamplingParams = _SAMPLING,
    config: GenerateConfig = _CONFIG,
    max_new_tokens: ArrayLike | Sequence[int] | None = None,
    eos_tokens: ArrayLike | Sequence[int] = (),
) -> GenerateState:
    """The state before the first round, prompts read and caches filled, for those who drive `step` themselves.

    Arguments and errors are those of `generate`. ``state.generation(config.capacity)`` gives the output at any time.
    """
    inputs = prepare(target, drafter, prompts, prompt_lengths, key, sampling, config, max_new_tokens, eos_tokens)
    return _init(target, target_params, drafter, drafter_params, inputs, config)


@partial(jax.jit, static_argnames=("target", "drafter", "config"))
def _init(target, target_params, drafter, drafter_params, inputs: Inputs, config: GenerateConfig) -> GenerateState:
    prompts, prompt_lengths, keys, sampling, max_new_tokens, eos_tokens = inputs
    B, P = prompts.shape
    K = config.draft_length if drafter is not None else 0
    slots = config.slots(drafting=drafter is not None)
    W = slots + 1  # one more token than is cached is known
    # Padding may be any number, -100 for instance, for which a model's embedding may give NaN.
    inside = jnp.arange(P, dtype=jnp.int32)[None] < prompt_lengths[:, None]
    known = (prompts >= 0) & (prompts < target.vocab_size)
    tokens = jnp.pad(jnp.where(inside & known, prompts, 0)[:, :W], ((0, 0), (0, max(W - P, 0))))

    full = config.capacity if target.max_positions is None else min(config.capacity, target.max_positions)
    valid = (prompt_lengths >= 1) & (prompt_lengths <= min(full, P)) & sampling.allowed()
    valid &= (known | ~inside).all(axis=1) & (max_new_tokens >= 0)
    prompt_lengths = jnp.where(valid, prompt_lengths, 1)
    room = jnp.full((B,), full, jnp.int32)
    # Never beyond the room by more than one, so that a huge limit cannot overflow.
    token_limit = prompt_lengths + jnp.minimum(max_new_tokens, room - prompt_lengths + 1)

    context = Context(tokens, prompt_lengths, sampling)

    reason = jnp.where(prompt_lengths >= room, FinishReason.CAPACITY, FinishReason.RUNNING)
    reason = jnp.where(prompt_lengths >= token_limit, FinishReason.LENGTH, reason)
    reason = jnp.where(valid, reason, FinishReason.INVALID).astype(jnp.int32)

    chunk = min(config.prefill_chunk, P)
    cache = target.init_cache(B, slots)
    drafter_state = None if drafter is None else drafter.init(drafter_params, context, slots, chunk)

    def see(drafter_state, start, hidden):
        return None if drafter is None else drafter.read(drafter_params, drafter_state, context, start, hidden)

    cache, drafter_state = prefill(
        target,
        target_params,
        tokens,
        prompt_lengths,
        cache,
        slots=slots,
        chunk=chunk,
        see=see,
        seen=drafter_state,
    )

    def zeros():
        return jnp.zeros((B,), jnp.int32)

    return GenerateState(
        tokens=tokens,
        lengths=prompt_lengths,
        finish_reason=reason,
        target_cache=cache,
        drafter_state=drafter_state,
        prompt_lengths=prompt_lengths,
        token_limit=token_limit,
        room=room,
        eos_tokens=eos_tokens,
        sampling=sampling,
        keys=keys,
        stats=Stats(zeros(), zeros(), zeros(), jnp.zeros((B, K), jnp.int32), jnp.zeros((B, K), jnp.int32)),
        logprobs=Logprobs(jnp.zeros((B, W), jnp.float32), jnp.zeros((B, W), jnp.float32)),
    )

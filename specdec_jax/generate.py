"""Speculative generation as one compiled program: prefill, then rounds of propose, verify and commit."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ._inputs import check_inputs, eos_array
from ._typing import Array, Int, PRNGKeyArray, PyTree
from .drafters import Context, Drafter
from .lm import LanguageModel, prefill
from .round import step
from .sampling import SamplingParams, row_keys
from .state import FinishReason, GenerateConfig, GenerateState, Generation, Logprobs, Stats


def generate(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    prompts: Int[Array, "B P"],
    prompt_lengths: Int[Array, "B"],
    *,
    key: PRNGKeyArray,
    sampling: SamplingParams = SamplingParams(),  # noqa: B008  (immutable)
    config: GenerateConfig = GenerateConfig(),  # noqa: B008
    max_new_tokens: Int[Array, "*b"] | int | None = None,
    eos_tokens: Int[Array, "E"] | tuple[int, ...] | list[int] = (),
) -> Generation:
    """Continue each prompt with tokens distributed exactly as ``target`` alone would draw them.

    Prompts are padded on the right; what lies past ``prompt_lengths`` is never read. ``drafter=None`` is plain decoding
    through the same loop. ``key`` is one key, folded with each row's index, or one key a row [B]; it is consumed. A row
    ends with its first end token, after ``max_new_tokens`` (one number or one a row; by default the row's capacity), or
    when it is full.

    Compiled once for each target, drafter, config and shape of the prompts. Lengths, keys, sampling values, limits
    and end tokens (up to eight, then up to sixteen, ...) are traced: other values compile nothing. It may be called
    in ``jax.jit`` and under ``jax.vmap``; there, values cannot be looked at, so a row whose prompt length is
    impossible ends at once as ``INVALID``.

    Raises:
        ValueError: before anything is compiled, for shapes that do not fit, an empty or overlong prompt, token ids
            outside the vocabulary, sampling values out of range, or a drafter with another vocabulary.
    """
    prompts, prompt_lengths, max_new_tokens = check_inputs(
        target, drafter, prompts, prompt_lengths, sampling, config, max_new_tokens
    )
    return _generate(
        target,
        target_params,
        drafter,
        drafter_params,
        prompts,
        prompt_lengths,
        key=key,
        sampling=sampling,
        config=config,
        max_new_tokens=max_new_tokens,
        eos_tokens=eos_array(eos_tokens),
    )


@partial(jax.jit, static_argnames=("target", "drafter", "config"))
def _generate(target, target_params, drafter, drafter_params, prompts, prompt_lengths, *, config, **inputs):
    state = init(target, target_params, drafter, drafter_params, prompts, prompt_lengths, config=config, **inputs)

    def running(state: GenerateState):
        return (state.finish_reason == FinishReason.RUNNING).any()

    def body(state: GenerateState):
        return step(target, target_params, drafter, drafter_params, state, config=config)[0]

    return lax.while_loop(running, body, state).generation(config.capacity)


def init(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    prompts: Int[Array, "B P"],
    prompt_lengths: Int[Array, "B"],
    *,
    key: PRNGKeyArray,
    sampling: SamplingParams,
    config: GenerateConfig,
    max_new_tokens: Int[Array, "*b"] | int,
    eos_tokens: Int[Array, "E"],
) -> GenerateState:
    """The state before the first round: prompts read, caches filled. Arguments as those of `generate`, unchecked."""
    B = prompts.shape[0]
    K = config.draft_length if drafter is not None else 0
    # The last block of a full row hangs K slots over, and one more token than is cached is known.
    slots = -(-(config.capacity + K) // 8) * 8
    W = slots + 1
    tokens = jnp.pad(prompts[:, :W], ((0, 0), (0, max(W - prompts.shape[1], 0)))).astype(jnp.int32)
    prompt_lengths = prompt_lengths.astype(jnp.int32)

    full = config.capacity if target.max_positions is None else min(config.capacity, target.max_positions)
    valid = (prompt_lengths >= 1) & (prompt_lengths <= min(full, prompts.shape[1]))
    prompt_lengths = jnp.where(valid, prompt_lengths, 1)
    room = jnp.full((B,), full, jnp.int32)
    # Compared as room left, so that a huge limit cannot overflow.
    token_limit = prompt_lengths + jnp.minimum(jnp.asarray(max_new_tokens, jnp.int32), room - prompt_lengths + 1)

    if config.rule == "greedy":  # the rule takes the likeliest token, so that is the distribution it samples from
        sampling = sampling._replace(temperature=0.0)
    sampling = sampling.broadcast(B)
    context = Context(tokens, prompt_lengths, sampling)

    reason = jnp.where(prompt_lengths >= room, FinishReason.CAPACITY, FinishReason.RUNNING)
    reason = jnp.where(prompt_lengths >= token_limit, FinishReason.LENGTH, reason)
    reason = jnp.where(valid, reason, FinishReason.INVALID).astype(jnp.int32)

    cache = target.init_cache(B, slots)
    cache = prefill(
        target,
        target_params,
        tokens,
        prompt_lengths,
        cache,
        slots=slots,
        chunk=min(config.prefill_chunk, prompts.shape[1]),
    )
    drafter_state = None
    if drafter is not None:
        drafter_state = drafter.init(drafter_params, context, slots, min(config.prefill_chunk, prompts.shape[1]))

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
        keys=row_keys(key, B),
        stats=Stats(zeros(), zeros(), zeros(), jnp.zeros((B, K), jnp.int32), jnp.zeros((B, K), jnp.int32)),
        logprobs=Logprobs(jnp.zeros((B, W), jnp.float32), jnp.zeros((B, W), jnp.float32)),
    )

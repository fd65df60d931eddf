"""A generation driven from the host, in two programs a round so that each can be timed.

It draws the same tokens as `generate`, which knows nothing of it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .. import loop
from .._typing import Array, Int, PyTree
from ..control import Controller, Costs, adaptive, estimate
from ..drafters import Drafter
from ..generate import init
from ..lm import LanguageModel
from ..round import Evidence, judge, propose, widths_of
from ..sampling import SamplingParams
from ..state import FinishReason, GenerateConfig
from ..verify import RULES
from .look import look, told
from .records import Moment

_SAMPLING = SamplingParams()
_CONFIG = GenerateConfig()
_ADAPTIVE = adaptive()


def record(
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
    num_likeliest: int = 4,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Moment]:
    """Generate as `generate` does, with its arguments and errors, and give out each round as it is done.

    ``num_likeliest`` tokens are recorded at each emitted place. Seconds are those of ``clock`` around programs that
    have run before; the recording itself, and going from one program to the next, is left out.
    """
    if not 1 <= num_likeliest <= target.vocab_size:
        raise ValueError(f"num_likeliest is {num_likeliest}; expected from 1 to the vocabulary's {target.vocab_size}")
    state = init(
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
        eos_tokens=eos_tokens,
    )

    batch, widths = state.lengths.shape[0], widths_of(drafter, config)
    if costs is None:
        costs = estimate(target_params, drafter, drafter_params, batch, config.widths)
    costs = costs.checked(config.widths)
    control = loop.begin(controller, drafter, batch, config)
    learn = jax.jit(partial(loop.learned, controller))

    def draft(state):
        return _draft(drafter, drafter_params, state, config, controller, costs, control)

    def verify(state, proposal, width):
        return _judge(target, target_params, drafter, drafter_params, state, proposal, config, width)

    # Programs write in the state that they are given. Rounds on a copy are thrown away: they compile them, and the
    # first time around is slow.
    proposal, _, spare = draft(jax.tree.map(jnp.copy, state))
    for width in widths:
        spare, _, _ = jax.block_until_ready(verify(spare, proposal, width))

    def timed(program, *args):
        started = clock()
        result = jax.block_until_ready(program(*args))
        return result, clock() - started

    def moments() -> Iterator[Moment]:
        nonlocal state, control
        running = np.asarray(state.finish_reason) == FinishReason.RUNNING
        while running.any():
            (proposal, limit, state), draft_seconds = timed(draft, state)
            width = next(width for width in widths if width > int(proposal.length.max()))
            (state, info, evidence), verify_seconds = timed(verify, state, proposal, width)
            control = learn(control, limit, info, state)
            seen = jax.device_get(look(config.rule, num_likeliest, info, evidence))
            yield Moment(
                tuple(told(seen, row) if running[row] else None for row in range(len(running))),
                draft_seconds,
                verify_seconds,
                tuple(map(FinishReason, np.asarray(state.finish_reason).tolist())),
                jax.tree.map(jnp.copy, state.stats),
            )
            running = np.asarray(state.finish_reason) == FinishReason.RUNNING

    return moments()


@partial(jax.jit, static_argnames=("target", "drafter", "config"))
def first_round(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    prompts: Int[Array, "B P"],
    prompt_lengths: Int[Array, "B"],
    key: Array,
    sampling: SamplingParams,
    config: GenerateConfig,
) -> Evidence:
    """Whole distributions: what the first round after the prompts is judged by."""
    state = init(
        target,
        target_params,
        drafter,
        drafter_params,
        prompts,
        prompt_lengths,
        key=key,
        sampling=sampling,
        config=config,
    )
    rule, width = RULES[config.rule], widths_of(drafter, config)[-1]
    proposal, state = propose(rule, drafter, drafter_params, state, config=config)
    return judge(rule, target, target_params, drafter, drafter_params, state, proposal, width)[2]


@partial(jax.jit, static_argnames=("drafter", "config", "controller"), donate_argnames="state")
def _draft(drafter, drafter_params, state, config, controller, costs, control):
    limit = loop.allowed(controller, drafter, costs, control, state, config)
    proposal, state = propose(RULES[config.rule], drafter, drafter_params, state, config=config, draft_length=limit)
    return proposal, limit, state


@partial(jax.jit, static_argnames=("target", "drafter", "config", "width"), donate_argnames="state")
def _judge(target, target_params, drafter, drafter_params, state, proposal, config, width):
    return judge(RULES[config.rule], target, target_params, drafter, drafter_params, state, proposal, width)

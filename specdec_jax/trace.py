"""What happened in a generation, round by round: what was guessed, how it was judged, and how long both halves took.

A recorded generation is driven from the host, in two programs a round so that each can be timed, and draws the same
tokens as `generate`, which knows nothing of it. Of each round a few numbers a token are kept, whatever the vocabulary.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from ._typing import Array, Float, Int, PyTree
from .control import Controller, Costs, Outcome, adaptive, estimate
from .drafters import Drafter
from .generate import init
from .lm import LanguageModel
from .round import Evidence, judge, propose, widths_of
from .sampling import SamplingParams
from .state import FinishReason, GenerateConfig, Round, Stats
from .verify import RULES, block, token
from .verify.proposal import q_of, uniforms

__all__ = ["Choice", "Follow", "Guess", "Moment", "RoundRecord", "first_round", "record"]

SAMPLED = {"token": token, "block": block}
"""The rules that decide by uniform draws, as modules with their parts; the others compare tokens."""

_SAMPLING = SamplingParams()
_CONFIG = GenerateConfig()
_ADAPTIVE = adaptive()


class Choice(NamedTuple):
    """A token and what target and draft gave it."""

    token: int
    p: float
    q: float | None
    """None at a place for which nothing was drafted."""


class Guess(NamedTuple):
    """A drafted token and how it was judged."""

    token: int
    p: float
    q: float
    accept: float | None
    """The rule accepts where ``draw`` is below it; None for rules that draw nothing."""
    draw: float | None


class Follow(NamedTuple):
    """The token after the kept guesses."""

    token: int
    p: float
    chance: float
    """With which it was drawn: its part of what was left of p after a refusal, or p itself."""


class RoundRecord(NamedTuple):
    """One row's round."""

    guesses: tuple[Guess, ...]
    """Those that were judged: where the target's logits broke, the ones before that."""
    num_accepted: int
    """Guesses kept and emitted."""
    follow: Follow | None
    """None where the row ended before it."""
    likeliest: tuple[tuple[Choice, ...], ...]
    """The target's likeliest tokens, of those that it may draw, at the places of the kept guesses and of the token
    after them."""

    @property
    def is_plain(self) -> bool:
        """Whether its token follows no guess: a step of plain decoding."""
        return not self.guesses and self.follow is not None

    @property
    def is_bonus(self) -> bool:
        """Whether there were guesses, of which the token after them corrects none."""
        return bool(self.guesses) and self.num_accepted == len(self.guesses)

    @property
    def tokens(self) -> list[int]:
        """What the round emitted."""
        kept = [guess.token for guess in self.guesses[: self.num_accepted]]
        return kept if self.follow is None else [*kept, self.follow.token]


class Moment(NamedTuple):
    """A round of the whole batch."""

    rows: tuple[RoundRecord | None, ...]
    """None for a row that had ended before."""
    draft_seconds: float
    """Of the program that drafts."""
    verify_seconds: float
    """Of the program that scores, judges and commits, what the drafter learns from that included."""
    finish_reasons: tuple[FinishReason, ...]
    stats: Stats
    """So far."""


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
    control = controller.init(batch, config.draft_length)
    update = jax.jit(controller.update)

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
            control = update(control, Outcome(limit, info.num_drafted, info.num_accepted, state.left))
            seen = jax.device_get(_look(config.rule, num_likeliest, info, evidence))
            yield Moment(
                tuple(_round(seen, row) if running[row] else None for row in range(len(running))),
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
    limit = controller.choose(costs, control, state.left, config.widths)
    proposal, state = propose(RULES[config.rule], drafter, drafter_params, state, config=config, draft_length=limit)
    return proposal, limit, state


@partial(jax.jit, static_argnames=("target", "drafter", "config", "width"), donate_argnames="state")
def _judge(target, target_params, drafter, drafter_params, state, proposal, config, width):
    return judge(RULES[config.rule], target, target_params, drafter, drafter_params, state, proposal, width)


class _Seen(NamedTuple):
    """What is kept of a round, of every place of every row; None: the rule draws nothing."""

    guesses: Int[Array, "B K"]
    drafted: Int[Array, "B"]
    accepted: Int[Array, "B"]
    committed: Int[Array, "B"]
    follow: Int[Array, "B"]
    p: Float[Array, "B K"]
    q: Float[Array, "B K"]
    accept: Float[Array, "B K"] | None
    draw: Float[Array, "B K"] | None
    follow_p: Float[Array, "B"]
    follow_chance: Float[Array, "B"]
    likeliest: Int[Array, "B T n"]
    likeliest_p: Float[Array, "B T n"]
    likeliest_q: Float[Array, "B T n"]


@partial(jax.jit, static_argnums=(0, 1))
def _look(rule: str, n: int, info: Round, evidence: Evidence) -> _Seen:
    keys, proposal, p, verdict = evidence
    q = q_of(proposal, p.shape[-1])
    K, accepted = q.shape[1], verdict.num_accepted
    parts = SAMPLED.get(rule)

    def of(values, tokens):
        return jnp.take_along_axis(values, tokens[..., None], axis=-1)[..., 0]

    p_next = jnp.take_along_axis(p, accepted[:, None, None], axis=1)[:, 0]
    weights = p_next if parts is None else parts.next_weights(proposal, p, accepted)
    top_p, top = lax.top_k(p, n)
    return _Seen(
        guesses=info.guesses,
        drafted=jnp.minimum(info.num_drafted, proposal.length),  # past broken logits nothing was judged
        accepted=info.num_accepted,
        committed=info.num_committed,
        follow=info.next_token,
        p=of(p[:, :-1], proposal.tokens),
        q=of(q, proposal.tokens),
        accept=None if parts is None else parts.thresholds(proposal, p),
        draw=None if parts is None else uniforms(keys, K),
        follow_p=of(p_next, verdict.next_token),
        follow_chance=of(weights, verdict.next_token) / weights.sum(-1),
        likeliest=top,
        likeliest_p=top_p,
        likeliest_q=jnp.take_along_axis(jnp.pad(q, ((0, 0), (0, 1), (0, 0))), top, axis=2),
    )


def _round(seen: _Seen, row: int) -> RoundRecord:
    drafted, accepted, committed = (int(n[row]) for n in (seen.drafted, seen.accepted, seen.committed))

    def column(values):
        return [None] * drafted if values is None else values[row, :drafted].tolist()

    follow = None
    if committed > accepted:
        follow = Follow(*(of[row].item() for of in (seen.follow, seen.follow_p, seen.follow_chance)))
    top = seen.likeliest, seen.likeliest_p, seen.likeliest_q

    def choices(place):
        found = map(Choice, *(of[row, place].tolist() for of in top))
        return tuple(one if place < drafted else one._replace(q=None) for one in found if one.p > 0)

    return RoundRecord(
        guesses=tuple(map(Guess, *map(column, (seen.guesses, seen.p, seen.q, seen.accept, seen.draw)))),
        num_accepted=accepted,
        follow=follow,
        likeliest=tuple(map(choices, range(committed))),
    )

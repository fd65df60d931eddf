"""As many guesses as pay: the time that is left, expected from running acceptance and from costs, at its least.

The model of Leviathan et al. (ICML 2023), section 3, with an acceptance for each place of the block and each row, and
with measured costs in the place of one constant. What was not tried yet is tried with hope, as long as all that was
lost stays within a small credit: a bandit that is conservative in the sense of Wu et al. (ICML 2016), plain decoding
being what it must not fall behind.
"""

from functools import cache, partial

import flax.struct
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float, Int
from ..sampling.draw import first_argmax
from .controller import Controller, Outcome
from .costs import Costs

_HOPE, _DOUBT = 0.7, 0.0
"""Acceptance of a guess before any was made: high, so that drafting is tried, and where the credit is used up, so low
that only what was kept counts."""
_STRENGTH = 6.0
"""Guesses that a prior is worth: that one, and the mean over places as the prior of each place."""
_MEMORY, _IDLE_MEMORY = 24.0, 64.0
"""Rounds with and without drafting after which a guess counts 1/e: what was not tried for long is worth a trial."""
_CREDIT, _INTEREST = 2.0, 0.01
"""Steps of plain decoding that trials may have lost at any time, and what each round adds to them. As much again may be
lost by guesses that seemed to pay on evidence alone; after that nothing is guessed until interest allows it."""


@flax.struct.dataclass
class AdaptiveState:
    """Counts of rounds with exponential forgetting, by place of the guess."""

    allowed: Float[Array, "B K"]
    made: Float[Array, "B K"]
    """Of those in which guess i was allowed: it was made."""
    tried: Float[Array, "B K"]
    """... and those before it were kept."""
    kept: Float[Array, "B K"]
    """... and so was it."""
    gained: Float[Array, "B"]
    """Guesses kept while the row ran."""
    spent: Float[Array, "K+1"]
    """Rounds, by the most guesses that a row was given."""


@cache
def adaptive(goal: str = "last_row") -> Controller:
    """The draft length, the same for all rows, that ends the batch soonest, or that commits most tokens per time.

    All rows share a pass, so a row with fewer guesses than the others would save nothing, and one that has ended saves
    nothing either. A batch therefore takes as long as its slowest row (the goal ``last_row``), and guesses that only
    the others keep make all of them wait. Where ended rows make room for new prompts, the tokens of all rows count
    alike (``throughput``).

    In a batch of several rows their tokens depend on each other's acceptance, though not in law; under the coupled rule
    not at all.

    Raises:
        ValueError: an unknown goal.
    """
    if goal not in _SPEEDS:
        raise ValueError(f"goal is {goal!r}; expected one of {', '.join(_SPEEDS)}")
    return Controller(_init, partial(_choose, goal), _update)


def _init(batch: int, K: int) -> AdaptiveState:
    none = jnp.zeros((batch, K), jnp.float32)
    return AdaptiveState(
        none, none, none, none, gained=jnp.zeros(batch, jnp.float32), spent=jnp.zeros(K + 1, jnp.float32)
    )


def _choose(
    goal: str, costs: Costs, state: AdaptiveState, left: Int[Array, "B"], widths: tuple[int, ...]
) -> Int[Array, "B"]:
    running = left > 0
    made = jnp.where(running[:, None], _made(state), 0)
    time = _time(costs, made, widths) / costs.verify[0]

    def best(acceptance: Float[Array, "B K"]) -> Int[Array, ""]:
        speed = _SPEEDS[goal](1 + _sum_to(made * jnp.cumprod(acceptance, axis=1)), left)
        return first_argmax(speed / time)

    hoped, sure = best(_acceptance(state, _HOPE)), best(_acceptance(state, _DOUBT))
    extra = _time(costs, jnp.ones((1, widths[-1] - 1), jnp.float32), widths) / costs.verify[0] - 1
    account = _CREDIT + _INTEREST * state.spent.sum() + _GAINS[goal](state.gained, left) - state.spent @ extra
    chosen = jnp.where(account >= time[hoped] - 1, hoped, jnp.where(account > -_CREDIT, sure, 0))
    return jnp.broadcast_to(chosen, left.shape)


def _all_rows(tokens: Float[Array, "B n"], left: Int[Array, "B"]) -> Float[Array, "n"]:
    """Of ``tokens`` a round: those of all rows that run."""
    return jnp.where(left[:, None] > 0, tokens, 0).sum(axis=0)


def _slowest_row(tokens: Float[Array, "B n"], left: Int[Array, "B"]) -> Float[Array, "n"]:
    """The inverse of the rounds that the slowest row needs."""
    return 1 / jnp.maximum((left[:, None].astype(jnp.float32) / tokens).max(axis=0), 1e-9)


_SPEEDS = {"last_row": _slowest_row, "throughput": _all_rows}
"""What a goal is reached sooner by, the more there is of it in a round."""

_GAINS = {
    "last_row": lambda gained, left: _mean(gained, left == left.max()),
    "throughput": lambda gained, left: _mean(gained, left > 0),
}
"""Tokens that counted for a goal, beyond one a round."""


def _mean(values: Float[Array, "B"], counted: Bool[Array, "B"]) -> Float[Array, ""]:
    return jnp.where(counted, values, 0).sum() / jnp.maximum(counted.sum(dtype=jnp.float32), 1)


def _made(state: AdaptiveState) -> Float[Array, "B K"]:
    """How often guess i comes to be made where it is allowed."""
    return (state.made + _STRENGTH) / (state.allowed + _STRENGTH)


def _acceptance(state: AdaptiveState, prior: float) -> Float[Array, "B K"]:
    """Of guess i, made after those before it were kept: the batch's, shrunk to all places', and what a row is better.

    Rows differ as far as their first guesses do by more than chance (a random effect, its variance by moments, as in
    DerSimonian and Laird, 1986): of many rows that are alike the slowest is not taken for a slow one.
    """
    tried, kept = state.tried.sum(axis=0), state.kept.sum(axis=0)
    mean = (kept.sum() + _STRENGTH * prior) / (tried.sum() + _STRENGTH)
    pooled = (kept + _STRENGTH * mean) / (tried + _STRENGTH)
    guesses = state.tried[:, 0]
    better = state.kept[:, 0] - guesses * pooled[0]
    within = pooled[0] * (1 - pooled[0])
    between = (jnp.square(better).sum() - within * tried[0]) / jnp.maximum(jnp.square(guesses).sum(), 1)
    between = jnp.maximum(between, 0)
    effect = between * better / jnp.maximum(between * guesses + within, 1e-9)  # of rows that are all sure, none
    return jnp.clip(pooled[None] + effect[:, None], 0, 1)


def _time(costs: Costs, made: Float[Array, "B K"], widths: tuple[int, ...]) -> Float[Array, "K+1"]:
    """Expected time of a round with 0 .. K guesses allowed, where rows make guess i with probability ``made``.

    A place costs nothing while no row makes a guess there, for a drafter may find none, or stop: a draft step is taken
    where some row made the guess before it, a wider verify pass where some row makes a guess that needs it.
    """
    some = 1 - (1 - made).prod(axis=0)
    tried = jnp.pad(some[:-1], (1, 0), constant_values=1)
    verify = jnp.asarray(costs.verify)[np.searchsorted(widths, np.arange(1, widths[-1] + 1))]
    return verify[0] + _sum_to((costs.draft_step * tried + jnp.diff(verify) * some)[None])[0]


def _sum_to(values: Float[Array, "B K"]) -> Float[Array, "B K+1"]:
    """Of the first 0 .. K columns."""
    return jnp.cumsum(jnp.pad(values, ((0, 0), (1, 0))), axis=1)


def _update(state: AdaptiveState, outcome: Outcome) -> AdaptiveState:
    place = jnp.arange(1, state.kept.shape[1] + 1, dtype=jnp.int32)[None, :]
    limit, drafted, accepted = (jnp.where(outcome.left > 0, count, 0) for count in outcome[:3])
    allowed = place <= limit[:, None]
    made = place <= drafted[:, None]
    kept = place <= accepted[:, None]
    drafting = (limit > 0).any()
    forget = jnp.where(allowed[:, :1], np.exp(-1 / _MEMORY), jnp.where(drafting, 1, np.exp(-1 / _IDLE_MEMORY)))
    left = forget.astype(jnp.float32)

    def count(before: Float[Array, "B K"], seen: Bool[Array, "B K"]) -> Float[Array, "B K"]:
        return left * before + seen.astype(jnp.float32)

    rounds = jnp.arange(state.spent.shape[0], dtype=jnp.int32) == drafted.max()
    return AdaptiveState(
        allowed=count(state.allowed, allowed),
        made=count(state.made, made),
        tried=count(state.tried, made & (place - 1 <= accepted[:, None])),
        kept=count(state.kept, kept),
        gained=state.gained + accepted.astype(jnp.float32),
        spent=state.spent + rounds.astype(jnp.float32),
    )

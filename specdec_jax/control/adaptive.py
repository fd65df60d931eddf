"""As many guesses as pay: committed tokens per time, expected from running acceptance and from costs, at its largest.

The model of Leviathan et al. (ICML 2023), section 3, with an acceptance for each place of the block and each row, and
with measured costs in the place of one constant. No choice that was seen to pay less than plain decoding is kept up.
"""

from functools import cache

import flax.struct
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float, Int
from ..sampling.draw import first_argmax
from .controller import Controller, Outcome
from .costs import Costs

_PRIOR = 0.7
"""Acceptance of a guess before any was made: high, so that drafting is tried."""
_STRENGTH = 4.0
"""Guesses that a prior is worth: that one, and the mean over places as the prior of each place."""
_ROW_STRENGTH = 8.0
"""Guesses that the pooled batch is worth beside a row's own."""
_MEMORY = 24.0
"""Drafting rounds after which a guess counts 1/e."""
_PATIENCE, _MOST_PATIENCE = 8, 512
"""Rounds without drafting before a probe of one guess. They double when most rows' guesses are refused in a probe; when
most are kept, the next round probes again."""


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
    idle: Int[Array, ""]
    """Rounds since the last one that drafted."""
    patience: Int[Array, ""]


@cache
def adaptive() -> Controller:
    """The draft length that commits most tokens per time over the rows that still run, the same for all of them.

    All rows share a pass, so a row with fewer guesses than the others would save nothing. In a batch of several rows
    their tokens depend on each other's acceptance, though not in law; under the coupled rule not at all.
    """
    return Controller(_init, _choose, _update)


def _init(batch: int, K: int) -> AdaptiveState:
    none = jnp.zeros((batch, K), jnp.float32)
    return AdaptiveState(none, none, none, none, idle=jnp.int32(0), patience=jnp.int32(_PATIENCE))


def _choose(costs: Costs, state: AdaptiveState, running: Bool[Array, "B"], widths: tuple[int, ...]) -> Int[Array, "B"]:
    made = jnp.where(running[:, None], (state.made + _STRENGTH) / (state.allowed + _STRENGTH), 0)
    tokens = running.sum(dtype=jnp.float32) + _sum_to(made * jnp.cumprod(_acceptance(state), axis=1))
    best = first_argmax(tokens / _time(costs, made, widths))
    probe = (best == 0) & (state.idle >= state.patience)
    return jnp.broadcast_to(jnp.where(probe, 1, best), running.shape)


def _acceptance(state: AdaptiveState) -> Float[Array, "B K"]:
    """Of guess i, made after those before it were kept: the row's, shrunk to the batch's, shrunk to all places'."""
    tried, kept = state.tried.sum(axis=0), state.kept.sum(axis=0)
    mean = (kept.sum() + _STRENGTH * _PRIOR) / (tried.sum() + _STRENGTH)
    pooled = (kept + _STRENGTH * mean) / (tried + _STRENGTH)
    return (state.kept + _ROW_STRENGTH * pooled[None]) / (state.tried + _ROW_STRENGTH)


def _time(costs: Costs, made: Float[Array, "B K"], widths: tuple[int, ...]) -> Float[Array, "K+1"]:
    """Expected time of a round with 0 .. K guesses allowed, where rows make guess i with probability ``made``.

    A place costs nothing while no row makes a guess there, for a drafter may find none, or stop: a draft step is taken
    where some row made the guess before it, a wider verify pass where some row makes a guess that needs it.
    """
    some = 1 - (1 - made).prod(axis=0)
    tried = jnp.pad(some[:-1], (1, 0), constant_values=1)
    verify = jnp.asarray(costs.verify)[np.searchsorted(widths, np.arange(1, widths[-1] + 1))]
    return verify[0] + _sum_to((costs.draft_step * tried + jnp.diff(verify) * some)[None])


def _sum_to(values: Float[Array, "B K"]) -> Float[Array, "K+1"]:
    """Of the first 0 .. K columns."""
    return jnp.cumsum(jnp.pad(values.sum(axis=0), (1, 0)))


def _update(state: AdaptiveState, outcome: Outcome) -> AdaptiveState:
    place = jnp.arange(1, state.kept.shape[1] + 1, dtype=jnp.int32)[None, :]
    limit, drafted, accepted = (jnp.where(outcome.counts, count, 0) for count in outcome[:3])
    allowed = place <= limit[:, None]
    made = place <= drafted[:, None]
    kept = place <= accepted[:, None]
    # A row that was allowed no guess taught nothing, and nothing is forgotten.
    left = jnp.where(allowed[:, :1], jnp.float32(np.exp(-1 / _MEMORY)), 1)

    def count(before: Float[Array, "B K"], seen: Bool[Array, "B K"]) -> Float[Array, "B K"]:
        return left * before + seen.astype(jnp.float32)

    drafting = (limit > 0).any()
    success = 2 * (accepted > 0).sum() > (drafted > 0).sum()
    refused = (drafted > 0).any() & ~success
    longer = jnp.where(state.idle > 0, 2 * state.patience, state.patience)
    longer = jnp.clip(longer, _PATIENCE, _MOST_PATIENCE)
    return AdaptiveState(
        allowed=count(state.allowed, allowed),
        made=count(state.made, made),
        tried=count(state.tried, made & (place - 1 <= accepted[:, None])),
        kept=count(state.kept, kept),
        idle=jnp.where(drafting, 0, state.idle + 1),
        patience=jnp.where(success, 0, jnp.where(refused, longer, state.patience)),
    )

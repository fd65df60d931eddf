"""What a drafter hands to a rule, what a rule hands back, and the arithmetic that the sampled rules share."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array, Bool, Float, Int
from ..sampling.draw import ACCEPT, RESIDUAL, RoundKeys, draw, stream


class Proposal(NamedTuple):
    """Up to K guesses a row.

    ``q[b, i]`` is, bit for bit, the distribution that ``tokens[b, i]`` was drawn from; None says that every token was
    a deterministic guess (a one-hot q). Only the first ``length[b]`` tokens are proposed; what stands behind them is
    ignored. Whether token i is proposed at all may depend on the tokens before it and on q, never on its own value.
    """

    tokens: Int[Array, "B K"]
    q: Float[Array, "B K V"] | None
    length: Int[Array, "B"]


class Verdict(NamedTuple):
    """How many of a row's guesses are kept, and the token that follows them."""

    num_accepted: Int[Array, "B"]
    next_token: Int[Array, "B"]


class Rule(NamedTuple):
    """An acceptance rule.

    ``verify(keys, proposal, p [B, K+1, V]) -> Verdict``
        p[b, i] is the target's distribution after the row's first i guesses.
    ``draw(keys, index, q [B, V]) -> tokens [B]``
        How a drafter must draw its guess number ``index`` from q for the rule to hold.
    """

    verify: Callable[[RoundKeys, Proposal, Array], Verdict]
    draw: Callable[[RoundKeys, Array | int, Array], Array]


def proposed(proposal: Proposal) -> Bool[Array, "B K"]:
    """Which places of the block hold a guess."""
    return jnp.arange(proposal.tokens.shape[1])[None, :] < proposal.length[:, None]


def q_of(proposal: Proposal, vocab_size: int) -> Float[Array, "B K V"]:
    """The draft distribution, one-hot for deterministic guesses and zero where nothing is proposed."""
    if proposal.q is None:
        ids = lax.broadcasted_iota(jnp.int32, (*proposal.tokens.shape, vocab_size), 2)
        q = (ids == proposal.tokens[:, :, None]).astype(jnp.float32)
    else:
        q = proposal.q
    return jnp.where(proposed(proposal)[:, :, None], q, 0)


def ratios(proposal: Proposal, p: Float[Array, "B T V"]) -> Float[Array, "B K"]:
    """r_i = p(x_i) / q(x_i), and 0 where nothing is proposed."""
    at = proposal.tokens[:, :, None]
    p_x = jnp.take_along_axis(p[:, :-1], at, axis=2)[:, :, 0]
    q_x = jnp.ones_like(p_x) if proposal.q is None else jnp.take_along_axis(proposal.q, at, axis=2)[:, :, 0]
    # A drawn token has q > 0. Should a drafter break that, the guess is refused, not accepted by a division by zero.
    valid = proposed(proposal) & (q_x > 0)
    return jnp.where(valid, p_x / jnp.where(valid, q_x, 1), 0)


def residual(
    proposal: Proposal, p: Float[Array, "B T V"], num_accepted: Int[Array, "B"], scale: Float[Array, "B"]
) -> Float[Array, "B V"]:
    """max(0, scale * p - q) at the place after the accepted guesses, unnormalised; p itself where that is all zero.

    Past a row's last guess q is zero, so the bonus token is drawn from p with no case of its own.
    """
    p_next = jnp.take_along_axis(p, num_accepted[:, None, None], axis=1)[:, 0]
    if proposal.tokens.shape[1] == 0:  # plain decoding proposes nothing
        return p_next
    q = q_of(proposal, p.shape[-1])
    last = jnp.minimum(num_accepted, q.shape[1] - 1)  # K accepted: there is no such place in q, and it counts as zero
    q_next = jnp.take_along_axis(q, last[:, None, None], axis=1)[:, 0]
    q_next = jnp.where((num_accepted < proposal.length)[:, None], q_next, 0)
    rest = jnp.maximum(scale[:, None] * p_next - q_next, 0)
    # p equal to q up to rounding leaves nothing; drawing from p is then exact, and never outside its support.
    return jnp.where(rest.sum(-1, keepdims=True) > 0, rest, p_next)


def uniforms(keys: RoundKeys, K: int) -> Float[Array, "B K"]:
    """The acceptance draws of a round, in [0, 1): ``u < h`` then accepts with probability h, and never at h = 0."""
    return jax.vmap(lambda key: jax.random.uniform(key, (K,), jnp.float32))(stream(keys, ACCEPT))


def draw_next(keys: RoundKeys, weights: Float[Array, "B V"]) -> Int[Array, "B"]:
    """The token after the accepted guesses."""
    return draw(stream(keys, RESIDUAL), weights)


def longest_prefix(accepted: Bool[Array, "B K"]) -> Int[Array, "B"]:
    """How many places from the left are accepted before the first that is not."""
    return jnp.cumprod(accepted.astype(jnp.int32), axis=1).sum(axis=1, dtype=jnp.int32)

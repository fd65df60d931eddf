"""The block rule: Sun et al., "Block Verification Accelerates Speculative Decoding" (ICLR 2025), algorithm 2.

Guesses are judged together: a later acceptance overrides an earlier refusal, and no rule for one drafted path keeps
more tokens on average. With r_i = p(x_i) / q(x_i) and p_0 = 1, p_i = min(1, p_{i-1} r_i) is the probability that at
least i guesses are kept, given the first i of them.
"""

import jax.numpy as jnp
from jax import lax

from .._typing import Array, Float, Int
from ..sampling.draw import RoundKeys
from . import token
from .proposal import Proposal, Rule, Verdict, draw_next, q_of, ratios, residual, uniforms


def prefix_probabilities(proposal: Proposal, p: Float[Array, "B T V"]) -> Float[Array, "B T"]:
    """p_0 .. p_K. The recursion p_i = min(1, p_{i-1} r_i) unrolls to log p_i = L_i - max(0, max_{j<=i} L_j), where
    L_i = log r_1 + .. + log r_i, so no loop is needed."""
    log_r = jnp.cumsum(jnp.log(ratios(proposal, p)), axis=1)
    log_p = log_r - jnp.maximum(lax.cummax(log_r, axis=1), 0)
    return jnp.pad(jnp.exp(log_p), ((0, 0), (1, 0)), constant_values=1)


def thresholds(proposal: Proposal, p: Float[Array, "B T V"]) -> Float[Array, "B K"]:
    """h_1 .. h_K: h_i = S_i / (S_i + 1 - p_i) with S_i = sum_x max(0, p_i p(x | x_1..i) - q(x | x_1..i)).

    At a row's own last guess h_i = p_i, and past it 0.
    """
    prefix = prefix_probabilities(proposal, p)[:, 1:]
    # S_i compares the distributions of the token after guess i: those of place i + 1.
    q_after = q_of(proposal, p.shape[-1])[:, 1:]
    excess = jnp.maximum(prefix[:, :-1, None] * p[:, 1:-1] - q_after, 0).sum(-1)
    total = excess + (1 - prefix[:, :-1])  # summed so, rounding cannot make it less than the excess
    inner = jnp.where(total > 0, excess / jnp.where(total > 0, total, 1), 1)  # 0/0: p_i = 1 and p equals q
    h = jnp.concatenate([inner, prefix[:, -1:]], axis=1)
    place = jnp.arange(1, h.shape[1] + 1)[None, :]
    length = proposal.length[:, None]
    return jnp.where(place < length, h, jnp.where(place == length, prefix, 0))


def num_accepted(u: Float[Array, "B K"], h: Float[Array, "B K"]) -> Int[Array, "B"]:
    """The last place that accepts, whatever those before it said."""
    place = jnp.arange(1, h.shape[1] + 1, dtype=jnp.int32)[None, :]
    return jnp.where(u < h, place, 0).max(axis=1, initial=0)


def next_weights(proposal: Proposal, p: Float[Array, "B T V"], accepted: Int[Array, "B"]) -> Float[Array, "B V"]:
    """The unnormalised distribution of the token after ``accepted`` guesses: max(0, p_tau p - q), or p at the end."""
    prefix = jnp.take_along_axis(prefix_probabilities(proposal, p), accepted[:, None], axis=1)[:, 0]
    return residual(proposal, p, accepted, prefix)


def verify(keys: RoundKeys, proposal: Proposal, p: Float[Array, "B T V"]) -> Verdict:
    """Commit a prefix of the guesses and one more token, jointly distributed as p."""
    accepted = num_accepted(uniforms(keys, proposal.tokens.shape[1]), thresholds(proposal, p))
    return Verdict(accepted, draw_next(keys, next_weights(proposal, p, accepted)))


rule = Rule(verify=verify, draw=token.draw_guess)

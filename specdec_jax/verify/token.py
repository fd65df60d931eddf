"""The token rule: Leviathan, Kalman and Matias (ICML 2023), algorithm 1; Chen et al. (2023), algorithm 2.

Each guess stands or falls alone: x_i is kept with probability min(1, p(x_i) / q(x_i)); the first refusal ends the block
and the token there is drawn from norm(max(0, p - q)).
"""

import jax.numpy as jnp

from .._typing import Array, Float, Int
from ..sampling.draw import DRAFT, RoundKeys, draw, stream
from .proposal import Proposal, Rule, Verdict, draw_next, longest_prefix, ratios, residual, uniforms


def thresholds(proposal: Proposal, p: Float[Array, "B T V"]) -> Float[Array, "B K"]:
    """h_i = min(1, r_i): the probability that guess i is kept once those before it are."""
    return jnp.minimum(ratios(proposal, p), 1)


def num_accepted(u: Float[Array, "B K"], h: Float[Array, "B K"]) -> Int[Array, "B"]:
    """The first refusal ends the block."""
    return longest_prefix(u < h)


def next_weights(proposal: Proposal, p: Float[Array, "B T V"], accepted: Int[Array, "B"]) -> Float[Array, "B V"]:
    """The unnormalised distribution of the token after ``accepted`` guesses."""
    return residual(proposal, p, accepted, jnp.ones(p.shape[0], p.dtype))


def verify(keys: RoundKeys, proposal: Proposal, p: Float[Array, "B T V"]) -> Verdict:
    """Commit a prefix of the guesses and one more token, jointly distributed as p."""
    accepted = num_accepted(uniforms(keys, proposal.tokens.shape[1]), thresholds(proposal, p))
    return Verdict(accepted, draw_next(keys, next_weights(proposal, p, accepted)))


def draw_guess(keys: RoundKeys, index: Int[Array, ""] | int, q: Float[Array, "B V"]) -> Int[Array, "B"]:
    """A guess from q, with noise that no other draw of the round shares."""
    return draw(stream(keys, DRAFT, index), q)


rule = Rule(verify=verify, draw=draw_guess)

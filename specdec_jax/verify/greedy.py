"""The greedy rule: keep guesses while they equal the target's likeliest token, then emit that token."""

import jax.numpy as jnp

from .._typing import Array, Float, Int
from ..sampling.draw import RoundKeys, first_argmax
from .proposal import Proposal, Rule, Verdict, longest_prefix, proposed


def accept_equal(proposal: Proposal, wanted: Int[Array, "B T"]) -> Verdict:
    """Keep guesses while they are the wanted tokens, then take the wanted token itself."""
    accepted = longest_prefix((proposal.tokens == wanted[:, :-1]) & proposed(proposal))
    return Verdict(accepted, jnp.take_along_axis(wanted, accepted[:, None], axis=1)[:, 0])


def verify(keys: RoundKeys, proposal: Proposal, p: Float[Array, "B T V"]) -> Verdict:
    """No randomness: the output is the target's own greedy continuation."""
    del keys
    return accept_equal(proposal, first_argmax(p))


def draw_guess(keys: RoundKeys, index: Int[Array, ""] | int, q: Float[Array, "B V"]) -> Int[Array, "B"]:
    """The drafter's likeliest token, lowest id on ties."""
    del keys, index
    return first_argmax(q)


rule = Rule(verify=verify, draw=draw_guess)

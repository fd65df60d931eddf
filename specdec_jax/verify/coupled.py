"""The coupled rule: draft and target race with the same Gumbel noise (Daliri, Musco and Suresh, 2025: "Coupling without
Communication and Drafter-Invariant Speculative Decoding").

The target's token at absolute position t is argmax(log p + g_t), g_t drawn from (row key, t): a function of target and
key alone. The drafter bets on the same race with q in the place of p, so it is often right; a wrong bet is replaced by
the target's token. Hence the output is the same tokens for every drafter, draft length and batch, and for none.
"""

import jax
import jax.numpy as jnp

from .._typing import Array, Float, Int
from ..sampling.draw import RoundKeys, first_argmax, position_noise
from .greedy import accept_equal
from .proposal import Proposal, Rule, Verdict


def race(keys: RoundKeys, index: Int[Array, ""] | int, weights: Float[Array, "B V"]) -> Int[Array, "B"]:
    """The winner of the race at the round's place ``index``: one token a row."""
    noise = position_noise(keys.row, keys.start + index, weights.shape[-1])
    return first_argmax(jnp.log(weights) + noise)


def verify(keys: RoundKeys, proposal: Proposal, p: Float[Array, "B T V"]) -> Verdict:
    """Keep guesses while they win the target's race, then emit the winner."""
    places = jnp.arange(p.shape[1], dtype=jnp.int32)
    wanted = jax.vmap(race, in_axes=(None, 0, 1), out_axes=1)(keys, places, p)
    return accept_equal(proposal, wanted)


rule = Rule(verify=verify, draw=race)

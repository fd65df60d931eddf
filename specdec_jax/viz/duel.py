"""The block rule beside the token rule, on the same guesses and the same draws."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Key
from ..sampling import RoundKeys, row_keys
from ..verify import Proposal, block, token
from ..verify.proposal import uniforms

__all__ = ["Duel", "Side", "constant_rounds", "duel"]

Values = Array | np.ndarray
"""On the device while it is computed, on the host once it is given out."""


class Side(NamedTuple):
    """What one rule says of N rounds of K guesses."""

    thresholds: Values  # [N, K]: guess i is accepted where its draw is below
    kept: Values  # [N]
    # [N, K]: the chance that at least i guesses are kept, given the first i, over what is drawn and guessed after them
    at_least: Values


class Duel(NamedTuple):
    """N rounds of K guesses, judged twice."""

    tokens: Values  # [N, K]
    length: Values  # [N]: guesses that were made
    draws: Values  # [N, K]
    token: Side
    block: Side

    def telling(self) -> int:
        """The first round in which the block rule kept more, the first of all where it never did."""
        return int(np.argmax(self.block.kept > self.token.kept))


def duel(keys: RoundKeys, proposal: Proposal, p: Float[Array, "N T V"]) -> Duel:
    """Judge the same rounds by both rules."""
    return jax.device_get(_duel(keys, proposal, p))


@jax.jit
def _duel(keys: RoundKeys, proposal: Proposal, p: Array) -> Duel:
    u = uniforms(keys, proposal.tokens.shape[1])
    singly, jointly = token.thresholds(proposal, p), block.thresholds(proposal, p)
    return Duel(
        tokens=proposal.tokens,
        length=proposal.length,
        draws=u,
        token=Side(singly, token.num_accepted(u, singly), jnp.cumprod(singly, axis=1)),
        block=Side(jointly, block.num_accepted(u, jointly), block.prefix_probabilities(proposal, p)[:, 1:]),
    )


@partial(jax.jit, static_argnames=("K", "rows"))
def constant_rounds(
    p: Float[Array, "V"], q: Float[Array, "V"], K: int, rows: int, key: Key[Array, "*b"]
) -> tuple[RoundKeys, Proposal, Float[Array, "N T V"]]:
    """The arguments of a rule for ``rows`` rounds in which p and q are the same at every place.

    ``key``: of all of them, or one a round.
    """
    keys = RoundKeys(row_keys(key, rows), jnp.zeros(rows, jnp.int32))
    q_rows = jnp.broadcast_to(q, (rows, K, q.shape[0]))
    guesses = [token.rule.draw(keys, i, q_rows[:, i]) for i in range(K)]
    proposal = Proposal(jnp.stack(guesses, axis=1), q_rows, jnp.full(rows, K, jnp.int32))
    return keys, proposal, jnp.broadcast_to(p, (rows, K + 1, p.shape[0]))

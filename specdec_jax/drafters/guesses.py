"""Guesses as a drafter collects them, one after the other, from the logits of a model."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from .._typing import Array, Bool, Float, Int
from ..sampling import SamplingParams, probabilities
from ..verify import Proposal
from .drafter import Draw
from .stops import Stop


class Guesses(NamedTuple):
    """The carry of a drafter's loop."""

    tokens: Int[Array, "B K"]
    q: Float[Array, "B K V"]
    limit: Int[Array, "B"]
    """Guesses that a row may be given in all. The loop ends with the largest: see `more`."""

    def more(self, index: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether any row may be given guess number ``index``."""
        return index < self.limit.max()

    def last(self, index: Int[Array, ""] | int) -> Int[Array, "B 1"]:
        """The guess before number ``index``."""
        return lax.dynamic_slice_in_dim(self.tokens, index - 1, 1, axis=1)

    def add(
        self,
        index: Int[Array, ""],
        logits: Float[Array, "B V"],
        sampling: SamplingParams,
        draw: Draw,
        stop: Stop,
        counts: Bool[Array, ""] | bool = True,
    ) -> "Guesses":
        """Draw guess number ``index``. A row whose logits are broken, or whose q says ``stop``, gets none from here on.

        Where ``counts`` is false, the row keeps its limit: what is drawn then will be written over.
        """
        q_i = logits.astype(jnp.float32)
        broken = jnp.isnan(q_i).any(-1) | jnp.isinf(q_i.max(-1))
        q_i = probabilities(jnp.where(broken[:, None], 0, q_i)[:, None], sampling)[:, 0]
        # Seen before the draw, so exact.
        limit = jnp.where((broken | stop(q_i)) & counts, jnp.minimum(self.limit, index), self.limit)
        return Guesses(
            lax.dynamic_update_index_in_dim(self.tokens, draw(index, q_i), index, axis=1),
            lax.dynamic_update_index_in_dim(self.q, q_i, index, axis=1),
            limit,
        )

    def proposal(self) -> Proposal:
        return Proposal(self.tokens, self.q, self.limit)


def no_guesses(K: int, vocab_size: int, limit: Int[Array, "B"]) -> Guesses:
    """Room for K guesses a row."""
    batch = limit.shape[0]
    return Guesses(jnp.zeros((batch, K), jnp.int32), jnp.zeros((batch, K, vocab_size), jnp.float32), limit)

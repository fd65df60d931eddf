"""Early exit: the target's first layers guess for the whole (self-speculative decoding, Zhang et al., ACL 2024).

The guesses come from a part of the target, so there is no second model, and none of its own cache: what the lower
layers hold of the committed tokens is in the target's cache already, and what they write there for guesses is written
again, with the same values or better ones, when the target scores them.
"""

from functools import cache as once

import jax.numpy as jnp
from jax import lax

from .._typing import Array, Int, PyTree
from ..lm import LanguageModel
from ..verify import Proposal
from .drafter import Context, Drafter, Draw
from .guesses import no_guesses
from .stops import Stop, never


@once  # the same drafter is the same static argument, for which nothing is compiled again
def early_exit(shallow: LanguageModel, *, stop: Stop = never, reads: float = 1.0) -> Drafter:
    """A drafter that runs ``shallow`` on the target's cache, until a row is to ``stop``.

    ``shallow.apply`` takes the target's whole cache and returns it with nothing changed but its own layers' slots for
    the tokens fed; its params are the ``drafter_params`` of `generate`, for our models the target's own, of which it
    ``reads`` a share. A round costs a pass over one token for each guess.
    """

    def init(params: PyTree, context: Context, slots: int, chunk: int) -> PyTree:
        del params, context, slots, chunk
        return ()

    def propose(
        params: PyTree, cache: PyTree, context: Context, K: int, limit: Int[Array, "B"], draw: Draw
    ) -> tuple[Proposal, PyTree]:
        lengths = context.lengths
        if shallow.max_positions is not None:
            # The pass that makes guess i reads position lengths - 1 + i, which must be one that the model knows.
            limit = jnp.clip(limit, 0, jnp.maximum(shallow.max_positions + 1 - lengths, 0))
        last = jnp.take_along_axis(context.tokens, lengths[:, None] - 1, axis=1)

        def guess(carry):
            index, cache, previous, guesses = carry
            logits, _, cache = shallow.apply(params, previous, cache, lengths - 1 + index)
            guesses = guesses.add(index, logits[:, 0], context.sampling, draw, stop)
            return index + 1, cache, guesses.last(index + 1), guesses

        carry = (jnp.int32(0), cache, last, no_guesses(K, shallow.vocab_size, limit))
        _, cache, _, guesses = lax.while_loop(lambda carry: carry[-1].more(carry[0]), guess, carry)
        return guesses.proposal(), cache

    def commit(params: PyTree, state: PyTree, context: Context, hidden: PyTree | None) -> PyTree:
        del params, context, hidden
        return state

    return Drafter(init, propose, commit, shallow.vocab_size, shares_cache=True, reads=reads)

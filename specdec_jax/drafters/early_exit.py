"""Early exit: the target's first layers guess for the whole (self-speculative decoding, Zhang et al., ACL 2024).

The guesses come from a part of the target, so there is no second model, and none of its own cache: what the lower
layers hold of the committed tokens is in the target's cache already, and what they write there for guesses is written
again, with the same values or better ones, when the target scores them.
"""

import jax.numpy as jnp
from jax import lax

from .._typing import Array, Int, PyTree
from ..lm import LanguageModel
from ..verify import Proposal
from .drafter import Context, Drafter, Draw
from .guesses import no_guesses


def early_exit(shallow: LanguageModel) -> Drafter:
    """A drafter that runs ``shallow`` on the target's cache.

    ``shallow.apply`` takes the target's whole cache and returns it with nothing changed but its own layers' slots for
    the tokens fed; its params are the ``drafter_params`` of `generate`, for our models the target's own. A round costs
    K passes over one token.
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

        def guess(index, carry):
            cache, previous, guesses = carry
            logits, _, cache = shallow.apply(params, previous, cache, lengths - 1 + index)
            guesses = guesses.add(index, logits[:, 0], context.sampling, draw)
            return cache, guesses.last(index + 1), guesses

        carry = (cache, last, no_guesses(K, shallow.vocab_size, limit))
        cache, _, guesses = lax.fori_loop(0, limit.max(), guess, carry)
        return guesses.proposal(), cache

    def commit(params: PyTree, state: PyTree, context: Context, hidden: PyTree | None) -> PyTree:
        del params, context, hidden
        return state

    return Drafter(init, propose, commit, shallow.vocab_size, shares_cache=True)

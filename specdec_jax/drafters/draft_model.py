"""An independent draft model: any LanguageModel with the target's vocabulary guesses token by token."""

import dataclasses
from functools import cache as once

import flax.struct
import jax.numpy as jnp
from jax import lax

from .._typing import Array, Int, PyTree
from ..lm import LanguageModel, prefill
from ..verify import Proposal
from .drafter import Context, Drafter, Draw
from .guesses import no_guesses
from .stops import Stop, never


@flax.struct.dataclass
class DraftModelState:
    cache: PyTree
    lengths: Int[Array, "B"]
    """Slots of a row's cache that hold its committed tokens; the rest is stale or never written."""


@once  # the same drafter is the same static argument, for which nothing is compiled again
def draft_model(model: LanguageModel, *, stop: Stop = never) -> Drafter:
    """A drafter that runs ``model`` until a row is to ``stop``; its params are the ``drafter_params`` of `generate`.

    A round costs one pass over two tokens and one over one token for each further guess. Two, because after a full
    acceptance the cache misses both the last guess and the bonus token; feeding a token that it already holds writes
    the same slot again.
    """

    def init(params: PyTree, context: Context, slots: int, chunk: int) -> DraftModelState:
        cache = model.init_cache(context.tokens.shape[0], slots)
        cache, _ = prefill(model, params, context.tokens, context.lengths, cache, slots=slots, chunk=chunk)
        return DraftModelState(cache=cache, lengths=jnp.maximum(context.lengths - 1, 0))

    def propose(
        params: PyTree, state: DraftModelState, context: Context, K: int, limit: Int[Array, "B"], draw: Draw
    ) -> tuple[Proposal, DraftModelState]:
        lengths = context.lengths
        if model.max_positions is not None:
            # The pass that makes guess i reads position lengths - 2 + i, which must be one that the model knows.
            limit = jnp.clip(limit, 0, jnp.maximum(model.max_positions + 1 - lengths, 0))
        drafting = limit.max() > 0
        # Two tokens a pass: one pass where the last round drafted, more where rounds without drafting left more out.
        passes = jnp.where(drafting, (lengths - state.lengths + 1) // 2, 0).max()

        def first(done, carry):
            cache, guesses = carry
            start = jnp.maximum(lengths - 2 * (passes - done), 0)
            pair = jnp.take_along_axis(context.tokens, start[:, None] + jnp.arange(2)[None], axis=1)
            logits, _, cache = model.apply(params, pair, cache, start)
            last = jnp.clip(lengths - 1 - start, 0, 1)  # a row of one token has nothing before it
            logits = jnp.take_along_axis(logits, last[:, None, None], axis=1)[:, 0]
            # A pass that only catches up has nothing to say of this round.
            return cache, guesses.add(jnp.int32(0), logits, context.sampling, draw, stop, done == passes - 1)

        def later(carry):
            index, cache, guesses = carry
            start = jnp.maximum(lengths - 1, 0) + index
            logits, _, cache = model.apply(params, guesses.last(index), cache, start)
            return index + 1, cache, guesses.add(index, logits[:, 0], context.sampling, draw, stop)

        # Loops of a traced number of trips rather than conditionals, which would copy the cache.
        carry = lax.fori_loop(0, passes, first, (state.cache, no_guesses(K, model.vocab_size, limit)))
        steps, cache, guesses = lax.while_loop(lambda carry: carry[-1].more(carry[0]), later, (jnp.int32(1), *carry))
        fed = jnp.where(drafting, lengths + steps - 1, state.lengths)
        return guesses.proposal(), dataclasses.replace(state, cache=cache, lengths=fed)

    def commit(params: PyTree, state: DraftModelState, context: Context, hidden: PyTree | None) -> DraftModelState:
        del params, hidden
        # The last committed token was drawn by the rule, not fed here; guesses that it replaced are stale.
        return dataclasses.replace(state, lengths=jnp.minimum(state.lengths, jnp.maximum(context.lengths - 1, 0)))

    return Drafter(init=init, propose=propose, commit=commit, vocab_size=model.vocab_size)

"""A feature head: a layer or two that guess from the target's own states, in the manner of EAGLE-3.

The target knows more about what comes next than its last token shows. A head reads the target's states after one token
together with the next token, and says what follows; where the target has not been yet, it reads its own output instead
(Li et al., "EAGLE-3", 2025, section 3).
"""

import dataclasses

import flax.struct
import jax.numpy as jnp
from jax import lax

from .._typing import Array, Int, PyTree, Shaped
from ..lm import FeatureModel
from ..verify import Proposal
from .drafter import Context, Drafter, Draw
from .guesses import no_guesses
from .stops import Stop, never


@flax.struct.dataclass
class FeatureHeadState:
    cache: PyTree
    """Of pairs made of the target's own states as far as ``pairs``; stale past them."""
    pairs: Int[Array, "B"]
    feature: Shaped[Array, "B D"]
    """What came out for the last of the pairs."""


def feature_head(head: FeatureModel, *, stop: Stop = never) -> Drafter:
    """A drafter that runs ``head``, for a target that gives out the states it reads, until a row is to ``stop``.

    A round costs a pass over one pair for each guess but the first, and one as wide as the verify pass, which puts what
    the target's states say of the committed tokens in the place of what the head had made up.
    """

    def init(params: PyTree, context: Context, slots: int, chunk: int) -> FeatureHeadState:
        del params, chunk
        cache, feature = head.init(context.tokens.shape[0], slots)
        return FeatureHeadState(cache=cache, pairs=jnp.maximum(context.lengths - 1, 0), feature=feature)

    def read(
        params: PyTree, state: FeatureHeadState, context: Context, start: Int[Array, ""], hidden: PyTree | None
    ) -> FeatureHeadState:
        return _learn(params, state, context, jnp.full_like(state.pairs, start), hidden)

    def propose(
        params: PyTree, state: FeatureHeadState, context: Context, K: int, limit: Int[Array, "B"], draw: Draw
    ) -> tuple[Proposal, FeatureHeadState]:
        # A row of one token has no pair, and so nothing to guess from.
        limit = jnp.where(state.pairs > 0, limit, 0)
        if head.max_positions is not None:
            # The pass that makes guess i reads pair number pairs - 1 + i.
            limit = jnp.clip(limit, 0, jnp.maximum(head.max_positions + 1 - state.pairs, 0))
        feature = state.feature[:, None]

        def first(_, guesses):
            return guesses.add(jnp.int32(0), head.logits(params, feature)[:, 0], context.sampling, draw, stop)

        def later(carry):
            index, cache, feature, guesses = carry
            feature, cache = head.apply(params, feature, guesses.last(index), cache, state.pairs + index - 1)
            guesses = guesses.add(index, head.logits(params, feature)[:, 0], context.sampling, draw, stop)
            return index + 1, cache, feature, guesses

        guesses = no_guesses(K, head.vocab_size, limit)
        # In a loop of one trip or none, for a product as wide as the vocabulary is dear where nothing is to be guessed.
        guesses = lax.fori_loop(0, guesses.more(jnp.int32(0)).astype(jnp.int32), first, guesses)
        carry = (jnp.int32(1), state.cache, feature, guesses)
        _, cache, _, guesses = lax.while_loop(lambda carry: carry[-1].more(carry[0]), later, carry)
        return guesses.proposal(), dataclasses.replace(state, cache=cache)

    def commit(params: PyTree, state: FeatureHeadState, context: Context, hidden: PyTree | None) -> FeatureHeadState:
        state = _learn(params, state, context, state.pairs, hidden)
        return dataclasses.replace(state, pairs=jnp.maximum(context.lengths - 1, 0))

    def _learn(params, state: FeatureHeadState, context: Context, start: Int[Array, "B"], hidden) -> FeatureHeadState:
        """Read pairs made of the target's states at the slots ``start ..``, as far as their tokens are known."""
        if hidden is None:
            raise ValueError(
                "the target gives out no hidden states, which a feature head reads; expected a target built with the "
                "layers it was trained on: models.load(..., hidden_layers=...)"
            )
        features = head.fuse(params, hidden)
        T = features.shape[1]
        place = start[:, None] + 1 + jnp.arange(T, dtype=jnp.int32)[None]
        tokens = jnp.take_along_axis(context.tokens, jnp.minimum(place, context.tokens.shape[1] - 1), axis=1)
        features, cache = head.apply(params, features, tokens, state.cache, start)
        last = context.lengths - 2 - start
        newest = jnp.take_along_axis(features, jnp.clip(last, 0, T - 1)[:, None, None], axis=1)[:, 0]
        feature = jnp.where(((last >= 0) & (last < T))[:, None], newest, state.feature)
        return dataclasses.replace(state, cache=cache, feature=feature)

    return Drafter(init=init, propose=propose, commit=commit, vocab_size=head.vocab_size, read=read)

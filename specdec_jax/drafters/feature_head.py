"""A feature head: a layer or two that guess from the target's own states, in the manner of EAGLE-3.

The target knows more about what comes next than its last token shows. A head reads the target's states after one token
together with the next token, and says what follows; where the target has not been yet, it reads its own output instead
(Li et al., "EAGLE-3", 2025, section 3).
"""

import dataclasses
from functools import cache as once

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array, Int, PyTree, Shaped
from ..lm import FeatureModel
from ..verify import Proposal
from .drafter import Context, Drafter, Draw
from .guesses import no_guesses
from .stops import Stop, never

_WAITING = 64
"""Pairs of a row that may wait, so that rounds of no guess cost next to nothing."""


@flax.struct.dataclass
class FeatureHeadState:
    cache: PyTree
    """Of pairs made of the target's own states as far as they are ``learned``; stale past them."""
    pairs: Int[Array, "B"]
    """All there are of the committed tokens."""
    learned: Int[Array, "B"]
    waiting: Shaped[Array, "B W D"]
    """What the target's states say of the pairs from ``learned`` on; stale past ``pairs``."""
    feature: Shaped[Array, "B D"]
    """What came out for the last of the pairs that are learned."""


@once  # the same drafter is the same static argument, for which nothing is compiled again
def feature_head(head: FeatureModel, *, stop: Stop = never) -> Drafter:
    """A drafter that runs ``head``, for a target that gives out the states it reads, until a row is to ``stop``.

    A round costs a pass over one pair for each guess but the first, and one over the pairs that the rounds before have
    added, which puts what the target's states say of the committed tokens in the place of what the head had made up. It
    waits until there is something to guess.
    """

    def init(params: PyTree, context: Context, slots: int, chunk: int) -> FeatureHeadState:
        del params, chunk
        # The last pairs of a full row may be learned by a pass as wide as all that may wait.
        cache, feature = head.init(context.tokens.shape[0], slots + _WAITING)
        waiting = jnp.zeros((feature.shape[0], _WAITING, feature.shape[1]), feature.dtype)
        pairs = jnp.maximum(context.lengths - 1, 0)
        return FeatureHeadState(cache=cache, pairs=pairs, learned=pairs, waiting=waiting, feature=feature)

    def read(
        params: PyTree, state: FeatureHeadState, context: Context, start: Int[Array, ""], hidden: PyTree | None
    ) -> FeatureHeadState:
        return _learn(params, state, context.tokens, _fused(params, hidden), jnp.full_like(state.pairs, start))

    def propose(
        params: PyTree, state: FeatureHeadState, context: Context, K: int, limit: Int[Array, "B"], draw: Draw
    ) -> tuple[Proposal, FeatureHeadState]:
        # A row of one token has no pair, and so nothing to guess from.
        limit = jnp.where(state.pairs > 0, limit, 0)
        if head.max_positions is not None:
            # The pass that makes guess i reads pair number pairs - 1 + i.
            limit = jnp.clip(limit, 0, jnp.maximum(head.max_positions + 1 - state.pairs, 0))
        guessing, most = limit.max() > 0, (state.pairs - state.learned).max()
        narrow = min(K + 1, _WAITING)  # what one round adds
        state = _catch_up(params, state, context.tokens, narrow, when=guessing & (most > 0) & (most <= narrow))
        state = _catch_up(params, state, context.tokens, _WAITING, when=guessing & (most > narrow))

        def guess(carry):
            index, cache, feature, guesses = carry

            def follow(_, carry):
                feature, cache = carry
                return head.apply(params, feature, guesses.last(index), cache, state.pairs + index - 1)

            # There is a feature for the first guess. This product, as wide as the vocabulary, must stay where the
            # feature changes: the compiler takes what a loop never changes out of it, and would do it for no guess too.
            feature, cache = lax.fori_loop(0, (index > 0).astype(jnp.int32), follow, (feature, cache))
            guesses = guesses.add(index, head.logits(params, feature)[:, 0], context.sampling, draw, stop)
            return index + 1, cache, feature, guesses

        carry = (jnp.int32(0), state.cache, state.feature[:, None], no_guesses(K, head.vocab_size, limit))
        _, cache, _, guesses = lax.while_loop(lambda carry: carry[-1].more(carry[0]), guess, carry)
        return guesses.proposal(), dataclasses.replace(state, cache=cache)

    def commit(params: PyTree, state: FeatureHeadState, context: Context, hidden: PyTree | None) -> FeatureHeadState:
        for features in _at_most(_fused(params, hidden), _WAITING):
            T = features.shape[1]
            full = (state.pairs - state.learned).max() + T > _WAITING
            state = _catch_up(params, state, context.tokens, _WAITING, when=full)
            place = state.pairs - state.learned
            write = jax.vmap(lambda row, new, at: lax.dynamic_update_slice_in_dim(row, new, at, axis=0))
            pairs = jnp.clip(context.lengths - 1, state.pairs, state.pairs + T)
            state = dataclasses.replace(state, waiting=write(state.waiting, features, place), pairs=pairs)
        return state

    def _fused(params, hidden):
        if hidden is None:
            raise ValueError(
                "the target gives out no hidden states, which a feature head reads; expected a target built with the "
                "layers it was trained on: models.load(..., hidden_layers=...)"
            )
        return head.fuse(params, hidden)

    def _catch_up(params, state: FeatureHeadState, tokens, width: int, *, when) -> FeatureHeadState:
        """Learn what waits, no more than ``width`` pairs of a row, in a loop of one trip or none."""

        def once(_, state):
            state = _learn(params, state, tokens, state.waiting[:, :width], state.learned)
            return dataclasses.replace(state, learned=state.pairs)

        return lax.fori_loop(0, when.astype(jnp.int32), once, state)

    def _learn(params, state: FeatureHeadState, tokens, features, start: Int[Array, "B"]) -> FeatureHeadState:
        """Read pairs ``start ..``, of these features and of tokens, as far as there are pairs."""
        T = features.shape[1]
        place = start[:, None] + 1 + jnp.arange(T, dtype=jnp.int32)[None]
        seconds = jnp.take_along_axis(tokens, jnp.minimum(place, tokens.shape[1] - 1), axis=1)
        out, cache = head.apply(params, features, seconds, state.cache, start)
        last = state.pairs - 1 - start
        newest = jnp.take_along_axis(out, jnp.clip(last, 0, T - 1)[:, None, None], axis=1)[:, 0]
        feature = jnp.where(((last >= 0) & (last < T))[:, None], newest, state.feature)
        return dataclasses.replace(state, cache=cache, feature=feature)

    return Drafter(init=init, propose=propose, commit=commit, vocab_size=head.vocab_size, read=read)


def _at_most(features: Shaped[Array, "B T D"], size: int) -> list[Shaped[Array, "B t D"]]:
    """In pieces of no more than so many tokens."""
    return [features[:, start : start + size] for start in range(0, features.shape[1], size)]

"""LanguageModel and FeatureModel: all that the decoding core needs to know of a model."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ._typing import Array, Int, PyTree


class LanguageModel(NamedTuple):
    """A causal language model as two pure functions. Write these two for a model of your own.

    ``init_cache(batch, capacity) -> cache``
        An empty cache with room for ``capacity`` tokens a row: any pytree of arrays.

    ``apply(params, tokens [B, T], cache, lengths [B]) -> (logits [B, T, V], hidden | None, cache)``
        Writes the T tokens of row b at slots ``lengths[b] .. lengths[b] + T - 1`` and lets each of them attend to
        itself and to every slot before it. ``logits[b, t]`` scores the token that follows ``tokens[b, t]``. Slots
        at or past a row's length hold nothing that counts: they may be stale, and a later call writes over them,
        so committing or rolling back is arithmetic on ``lengths``, which stays with the caller. ``hidden`` holds
        the states ``[B, T, ...]`` that the model was built to give out, or None. A model that keeps no cache at
        all can store the tokens themselves there.

    ``vocab_size``
        V, the width of the logits. A token that must never come out has a logit of -inf.

    ``max_positions``
        The largest number of tokens a row may hold, or None where the model sets no bound.

    A model is a static argument of the compiled program, so build it once and reuse it; what may change between
    calls belongs in ``params``, never in a closure.
    """

    init_cache: Callable[[int, int], PyTree]
    apply: Callable[[PyTree, Array, PyTree, Array], tuple[Array, PyTree | None, PyTree]]
    vocab_size: int
    max_positions: int | None = None


class FeatureModel(NamedTuple):
    """A head that guesses from a target's states, as four pure functions.

    It reads *pairs*: number s is a feature of token s and the id of token s + 1.

    ``init(batch, slots) -> (cache, feature [B, D])``
        An empty cache, and any feature.
    ``fuse(params, hidden [B, T, ...]) -> features [B, T, D]``
        The target's states as the head takes them.
    ``apply(params, features [B, T, D], tokens [B, T], cache, lengths [B]) -> (features [B, T, D], cache)``
        Reads T pairs at the slots ``lengths ..``, as `LanguageModel.apply` reads tokens. What comes out stands for the
        feature of the pair's own token, so it can be fed with the token that follows.
    ``logits(params, features [B, T, D]) -> [B, T, V]``
        Over the target's vocabulary, -inf where the head knows no token.
    ``vocab_size``, ``max_positions``
        V, and the most pairs a row may hold, or None.
    """

    init: Callable[[int, int], tuple[PyTree, Array]]
    fuse: Callable[[PyTree, PyTree], Array]
    apply: Callable[[PyTree, Array, Array, PyTree, Array], tuple[Array, PyTree]]
    logits: Callable[[PyTree, Array], Array]
    vocab_size: int
    max_positions: int | None = None


def _nothing(seen: PyTree, start: Array, hidden: PyTree | None) -> PyTree:
    del start, hidden
    return seen


def prefill(
    model: LanguageModel,
    params: PyTree,
    tokens: Int[Array, "B W"],
    lengths: Int[Array, "B"],
    cache: PyTree,
    *,
    slots: int,
    chunk: int,
    see: Callable[[PyTree, Array, PyTree | None], PyTree] = _nothing,
    seen: PyTree = None,
) -> tuple[PyTree, PyTree]:
    """Fill the cache with all but the last of each row's tokens, ``chunk`` of them at a time; returns (cache, seen).

    The last token stays out: the first round feeds it, and only then are logits needed (unused here, they are dead code
    to the compiler). All rows go in step from slot 0, so a short row runs on into its padding; what that writes lies
    past the row's length and is stale. ``slots`` is the capacity that the cache was made with, at most W. After each
    chunk, ``seen = see(seen, first slot of the chunk, hidden)``.
    """
    chunk = min(chunk, slots)
    longest = lengths.max() - 1

    def more(carry):
        return carry[0] < longest

    def feed(carry):
        done, cache, seen = carry
        # The last chunk may be pushed back to end with the cache: what it feeds again writes the same values again.
        start = jnp.minimum(done, slots - chunk)
        block = lax.dynamic_slice_in_dim(tokens, start, chunk, axis=1)
        _, hidden, cache = model.apply(params, block, cache, jnp.full(lengths.shape, start))
        return start + chunk, cache, see(seen, start, hidden)

    return lax.while_loop(more, feed, (jnp.int32(0), cache, seen))[1:]

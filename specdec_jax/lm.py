"""LanguageModel: all that the decoding core needs to know of a model."""

from collections.abc import Callable
from typing import NamedTuple

from ._typing import Array, PyTree


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

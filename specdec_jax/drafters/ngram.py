"""The n-gram drafter: guesses that what followed the row's latest words last time follows them again.

Prompt lookup (Saxena, 2023; LLMA: Yang et al., 2023), found inside the compiled program from the row's own tokens. It
needs no model, and pays where the answer repeats its prompt: editing, summarising, extraction, code.
"""

from functools import cache

import jax.numpy as jnp
from jax import lax

from .._typing import Array, Int, PyTree
from ..verify import Proposal
from .drafter import Context, Drafter, Draw


@cache  # the same drafter is the same static argument, for which nothing is compiled again
def ngram(max_ngram: int = 4, min_ngram: int = 1) -> Drafter:
    """A drafter without parameters: pass ``drafter_params=None``.

    Of all earlier places where the row's last m tokens stand too, it takes the one that agrees longest (at most
    ``max_ngram`` tokens; fewer than ``min_ngram`` count as none), the latest where several do, and proposes what
    followed. Where that runs into the end of the row it goes round again, as a row that repeats itself would.
    """
    whole = all(isinstance(size, int) and not isinstance(size, bool) for size in (min_ngram, max_ngram))
    if not whole or not 1 <= min_ngram <= max_ngram:
        raise ValueError(
            f"min_ngram is {min_ngram} and max_ngram {max_ngram}; expected integers, 1 <= min_ngram <= max_ngram"
        )

    def init(params: PyTree, context: Context, slots: int, chunk: int) -> tuple[()]:
        return ()

    def propose(
        params: PyTree, state: tuple[()], context: Context, K: int, limit: Int[Array, "B"], draw: Draw
    ) -> tuple[Proposal, tuple[()]]:
        agreed, after = longest_match(context.tokens, context.lengths, max_ngram)
        period = jnp.maximum(context.lengths - after, 1)  # tokens known to follow the match
        steps = lax.rem(jnp.arange(K, dtype=jnp.int32)[None, :], period[:, None])
        tokens = jnp.take_along_axis(context.tokens, after[:, None] + steps, axis=1)
        length = jnp.where(agreed >= min_ngram, limit, 0)
        return Proposal(jnp.where(length[:, None] > 0, tokens, 0), None, length), state

    def commit(params: PyTree, state: tuple[()], context: Context, hidden: PyTree | None) -> tuple[()]:
        return state

    return Drafter(init=init, propose=propose, commit=commit)


def longest_match(
    tokens: Int[Array, "B W"], lengths: Int[Array, "B"], max_ngram: int
) -> tuple[Int[Array, "B"], Int[Array, "B"]]:
    """How many of the row's last tokens the best earlier place repeats, and the slot that follows that place."""
    W = tokens.shape[1]
    slot = jnp.arange(W, dtype=jnp.int32)[None, :]
    last = lengths[:, None] - 1
    running = jnp.broadcast_to(slot < last, tokens.shape)  # a place ends before the row's last token
    agreed = jnp.zeros_like(tokens)
    for back in range(max_ngram):
        wanted = jnp.take_along_axis(tokens, jnp.maximum(last - back, 0), axis=1)
        shifted = jnp.pad(tokens, ((0, 0), (back, 0)))[:, :W]
        running = running & (slot >= back) & (shifted == wanted)
        agreed = agreed + running.astype(tokens.dtype)
    best = agreed.max(axis=1)
    place = jnp.where((agreed == best[:, None]) & (slot < last), slot, 0).max(axis=1)
    return best, place + 1

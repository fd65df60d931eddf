"""The same draft length in every round."""

from functools import cache

import jax.numpy as jnp

from .._typing import Array, Int, PyTree
from .controller import Controller, Outcome
from .costs import Costs


@cache
def constant(length: int | None = None) -> Controller:
    """Always ``length`` guesses, or as many as the config allows; a row's tokens then depend on no other row."""
    if length is not None and length < 0:
        raise ValueError(f"length is {length}; expected >= 0, or None for as many as the config allows")
    return fixed(length)


def fixed(length: Int[Array, ""] | int | None) -> Controller:
    """The same for a length that may be traced: it is built where that is known, within a program."""

    def init(batch: int, K: int) -> tuple[()]:
        del batch, K
        return ()

    def choose(costs: Costs, state: PyTree, left: Int[Array, "B"], widths: tuple[int, ...]) -> Int[Array, "B"]:
        del costs, state
        K = widths[-1] - 1
        limit = jnp.minimum(jnp.asarray(K if length is None else length, jnp.int32), K)
        return jnp.broadcast_to(limit, left.shape)

    def update(state: PyTree, outcome: Outcome) -> PyTree:
        del outcome
        return state

    return Controller(init, choose, update)

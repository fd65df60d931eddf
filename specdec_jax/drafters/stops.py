"""Early stops: when a row is to be given no more guesses in a round, judged from q before the next guess is drawn.

A stop may look at q, which earlier guesses shaped, and at nothing later: whether a guess is verified must not depend on
its own value. A function of q alone cannot know that value, so any such function is exact.
"""

from collections.abc import Callable
from functools import cache

import jax.numpy as jnp
from jax.scipy.special import entr

from .._typing import Array, Bool, Float

Stop = Callable[[Array], Array]
"""``stop(q [B, V]) -> [B]``: True where the row is given neither the guess that q is of, nor any after it."""


def never(q: Float[Array, "B V"]) -> Bool[Array, "B"]:
    """As many guesses as are allowed."""
    return jnp.zeros(q.shape[:1], bool)


@cache  # as drafters are
def entropy_above(nats: float) -> Stop:
    """Where the drafter does not know what comes: the entropy of q is more than ``nats``."""
    _check("nats", nats, 0.0, float("inf"))
    return lambda q: entr(q).sum(axis=-1) > nats


@cache
def likeliest_below(probability: float) -> Stop:
    """Where not even the likeliest token of q has ``probability``."""
    _check("probability", probability, 0.0, 1.0)
    return lambda q: q.max(axis=-1) < probability


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; expected a number from {least:g} to {most:g}")

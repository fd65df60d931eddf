"""Logits to the distribution that is sampled from: temperature, top-k, top-p, min-p, in that order.

The cuts are found by bisection over the bit patterns of floats instead of by sorting: 31 sums of the vocabulary find
the exact threshold, need no second copy of the logits, and over a sharded vocabulary need only sums of scalars.
"""

import jax.numpy as jnp
from jax import lax

from .._typing import Array, Bool, Float
from .draw import first_argmax
from .params import LEAST, SamplingParams

_INF_BITS = 0x7F800000  # float32 infinity: bit patterns of non-negative floats are ordered like the floats


def probabilities(logits: Float[Array, "B T V"], sampling: SamplingParams) -> Float[Array, "B T V"]:
    """The distribution that each row draws from, in float32; every row of it sums to one.

    A greedy row (temperature 0) gets a one-hot distribution on the first of its largest logits, so greedy and sampled
    rows can share a batch and every acceptance rule serves both. Logits must hold neither NaN nor +inf; -inf stands for
    a token that is never drawn.
    """
    logits = logits.astype(jnp.float32)
    sampling = sampling.broadcast(logits.shape[0])
    temperature, top_k, top_p, min_p = (jnp.asarray(value)[:, None, None] for value in sampling)
    greedy = temperature < LEAST

    # Distances below the maximum are >= 0 whatever the temperature, so no exponential overflows.
    distance = (logits.max(-1, keepdims=True) - logits) / jnp.where(greedy, jnp.float32(1), temperature)
    weight = jnp.exp(-distance)

    def cut(weight):
        # A greedy row draws from no tail, so its cuts need not be found.
        used_k = (top_k > 0) & ~greedy
        kept = lax.cond(
            used_k.any(),
            lambda: jnp.where(used_k, distance <= _threshold(distance, jnp.ones_like(weight), top_k), True),
            lambda: jnp.ones(weight.shape, bool),
        )
        weight = jnp.where(kept, weight, 0)
        used_p = (top_p < 1) & ~greedy
        kept = lax.cond(
            used_p.any(),
            lambda: jnp.where(
                used_p, distance <= _threshold(distance, weight, top_p * weight.sum(-1, keepdims=True)), True
            ),
            lambda: jnp.ones(weight.shape, bool),
        )
        weight = jnp.where(kept, weight, 0)
        # The likeliest token has weight one, so min-p compares the weights themselves.
        return jnp.where(weight >= min_p, weight, 0)

    needed = ((top_k > 0) | (top_p < 1) | (min_p > 0)) & ~greedy
    weight = lax.cond(needed.any(), cut, lambda weight: weight, weight)
    sampled = weight / weight.sum(-1, keepdims=True)
    index = lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    likeliest = (index == first_argmax(logits)[:, :, None]).astype(jnp.float32)
    return jnp.where(greedy, likeliest, sampled)


def _threshold(
    distance: Float[Array, "B T V"], weight: Float[Array, "B T V"], needed: Float[Array, "B #T 1"] | Array
) -> Float[Array, "B T 1"]:
    """The least d such that the tokens at distance d or nearer weigh at least ``needed``; infinity where none do."""
    needed = jnp.broadcast_to(needed.astype(jnp.float32), (*distance.shape[:2], 1))

    def enough(bits) -> Bool[Array, "B T 1"]:
        inside = distance <= lax.bitcast_convert_type(bits, jnp.float32)
        return jnp.where(inside, weight, 0).sum(-1, keepdims=True) >= needed

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low) // 2
        reached = enough(middle)
        return jnp.where(reached, low, middle + 1), jnp.where(reached, middle, high)

    low = jnp.zeros(needed.shape, jnp.int32)
    high = jnp.full(needed.shape, _INF_BITS, jnp.int32)
    _, high = lax.fori_loop(0, 31, halve, (low, high))
    return lax.bitcast_convert_type(high, jnp.float32)

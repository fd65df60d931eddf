"""Parts that every family is made of: products with weights, and RMS normalisation.

Each takes ``stack``: leading sizes in front of every parameter, so that one module can hold a whole stack of layers.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from specdec_jax._typing import Array, Float

_INITIAL_SCALE = 0.02  # standard deviation of fresh weights


def linear(x: Float[Array, "B T I"], weight: Float[Array, "*out I"]) -> Float[Array, "B T *out"]:
    """``x @ weight.T``, with weights as Hugging Face stores them: the axis that is summed over comes last.

    The weights are the left operand, because XLA:CPU is fastest so: all products of SmolLM2-135M on two cores take
    22, 29 and 35 ms for 1, 4 and 8 tokens, against 22, 60 and 84 ms for ``x @ w``. It works on four columns at a time,
    and a remainder costs more than filling it up (5 tokens: 42 ms). Elsewhere the compiler chooses the order.
    """
    B, T, size = x.shape
    rows = B * T
    rest = -rows % 4
    if rows > 2 and rest:
        x = jnp.pad(x.reshape(1, rows, size), ((0, 0), (0, rest), (0, 0)))
    product = lax.dot_general(weight, x, (((weight.ndim - 1,), (2,)), ((), ())))
    y = jnp.moveaxis(product, (-2, -1), (0, 1))
    return y if y.shape[:2] == (B, T) else y[0, :rows].reshape(B, T, *weight.shape[:-1])


class Linear(nnx.Module):
    """A product with a weight ``[*out, in]`` and, if asked for, a bias ``[*out]``."""

    def __init__(
        self,
        in_size: int,
        out: Sequence[int],
        *,
        bias: bool = False,
        stack: tuple[int, ...] = (),
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        shape = (*stack, *out, in_size)
        self.weight = nnx.Param(_INITIAL_SCALE * jax.random.normal(rngs.params(), shape, dtype))
        self.bias = nnx.Param(jnp.zeros(shape[:-1], dtype)) if bias else None

    def __call__(self, x: Float[Array, "B T I"]) -> Float[Array, "B T *out"]:
        y = linear(x, self.weight[...])
        if self.bias is None:
            return y
        return y + self.bias[...][None, None]


class RMSNorm(nnx.Module):
    """Division by the root of the mean square, computed in float32 whatever the dtype of the weights."""

    def __init__(self, size: int, *, eps: float, stack: tuple[int, ...] = (), dtype: jnp.dtype):
        self.eps = eps
        self.weight = nnx.Param(jnp.ones((*stack, size), dtype))

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        wide = x.astype(jnp.float32)
        scale = lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + self.eps)
        return (wide * scale).astype(x.dtype) * self.weight[...][None, None]

"""Parts that every family is made of: products with weights, norms and embeddings.

Each takes ``stack``: leading sizes in front of every parameter, so that one module can hold a whole stack of layers.
A parameter of which a device may hold a part carries the names of its axes, see `specdec_jax.sharding`.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import PartitionSpec as P

from specdec_jax._typing import Array, Float, Int
from specdec_jax.sharding import VOCAB

from .int8 import Int8Weight, contract, lookup, product

_INITIAL_SCALE = 0.02  # standard deviation of fresh weights


def linear(x: Float[Array, "B T I"], weight: Float[Array, "*out I"] | Int8Weight) -> Float[Array, "B T *out"]:
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
    y = jnp.moveaxis(product(weight, x) if isinstance(weight, Int8Weight) else contract(weight, x), (-2, -1), (0, 1))
    return y if y.shape[:2] == (B, T) else y[0, :rows].reshape(B, T, *weight.shape[:-1])


class Linear(nnx.Module):
    """A product with a weight ``[*out, in]`` and, if asked for, a bias ``[*out]``; ``axes`` are the weight's."""

    def __init__(
        self,
        in_size: int,
        out: Sequence[int],
        *,
        axes: Sequence[str | None] = (),
        bias: bool = False,
        stack: tuple[int, ...] = (),
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        shape = (*stack, *out, in_size)
        names = P(*(None,) * len(stack), *axes)
        weight = _INITIAL_SCALE * jax.random.normal(rngs.params(), shape, dtype)
        self.weight = nnx.Param(weight, axes=names, matrix=True)
        self.bias = nnx.Param(jnp.zeros(shape[:-1], dtype), axes=P(*names[:-1])) if bias else None

    def __call__(self, x: Float[Array, "B T I"]) -> Float[Array, "B T *out"]:
        y = linear(x, self.weight.get_value())
        if self.bias is None:
            return y
        return y + self.bias[...][None, None]


def head(width: int, vocab_size: int, *, dtype: jnp.dtype, rngs: nnx.Rngs) -> Linear:
    """From states to logits, with a weight of its own."""
    return Linear(width, (vocab_size,), axes=(VOCAB, None), dtype=dtype, rngs=rngs)


def _over_rows(weight: Float[Array, "D"], x: Float[Array, "*rows D"]) -> Float[Array, "*ones D"]:
    return weight.reshape((1,) * (x.ndim - 1) + weight.shape)


def _rms_normed(x: Float[Array, "*rows D"], eps: float) -> Float[Array, "*rows D"]:
    wide = x.astype(jnp.float32)
    return wide * lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)


class RMSNorm(nnx.Module):
    """Division by the root of the mean square, computed in float32 whatever the dtype of the weights."""

    def __init__(self, size: int, *, eps: float, stack: tuple[int, ...] = (), dtype: jnp.dtype):
        self.eps = eps
        self.weight = nnx.Param(jnp.ones((*stack, size), dtype))

    def __call__(self, x: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
        return _rms_normed(x, self.eps).astype(x.dtype) * _over_rows(self.weight[...], x)


class OffsetRMSNorm(nnx.Module):
    """The same times ``1 + weight``, which is rounded to the input's dtype only at the end."""

    def __init__(self, size: int, *, eps: float, stack: tuple[int, ...] = (), dtype: jnp.dtype):
        self.eps = eps
        self.weight = nnx.Param(jnp.zeros((*stack, size), dtype))

    def __call__(self, x: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
        scale = 1 + _over_rows(self.weight[...], x).astype(jnp.float32)
        return (_rms_normed(x, self.eps) * scale).astype(x.dtype)


class LayerNorm(nnx.Module):
    """Mean 0 and variance 1, then a weight and a bias, in float32 whatever their dtype."""

    def __init__(self, size: int, *, eps: float, stack: tuple[int, ...] = (), dtype: jnp.dtype):
        self.eps = eps
        self.weight = nnx.Param(jnp.ones((*stack, size), dtype))
        self.bias = nnx.Param(jnp.zeros((*stack, size), dtype))

    def __call__(self, x: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
        wide = x.astype(jnp.float32)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        weight, bias = (_over_rows(part[...], x).astype(jnp.float32) for part in (self.weight, self.bias))
        return (_rms_normed(centred, self.eps) * weight + bias).astype(x.dtype)


class Embedding(nnx.Module):
    """A row of ``weight [V, D]`` for each token, times ``scale``; a tied head uses the weight without it."""

    def __init__(self, vocab_size: int, width: int, *, scale: float | None = None, dtype: jnp.dtype, rngs: nnx.Rngs):
        weight = _INITIAL_SCALE * jax.random.normal(rngs.params(), (vocab_size, width), dtype)
        self.weight = nnx.Param(weight, axes=P(VOCAB, None), matrix=True)
        self.scale = scale
        self.dtype = dtype

    def __call__(self, tokens: Int[Array, "B T"], positions: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        x = lookup(self.weight.get_value(), tokens, self.dtype)
        # The scale is rounded first, as it was when models with one were trained.
        return x if self.scale is None else x * jnp.asarray(self.scale, x.dtype)


class PositionedEmbedding(nnx.Module):
    """A row of ``weight [V, D]`` for each token plus a row of ``positions [P, D]`` for its place."""

    def __init__(self, vocab_size: int, max_positions: int, width: int, *, dtype: jnp.dtype, rngs: nnx.Rngs):
        weight = _INITIAL_SCALE * jax.random.normal(rngs.params(), (vocab_size, width), dtype)
        self.weight = nnx.Param(weight, axes=P(VOCAB, None), matrix=True)
        self.positions = nnx.Param(_INITIAL_SCALE * jax.random.normal(rngs.params(), (max_positions, width), dtype))

    def __call__(self, tokens: Int[Array, "B T"], positions: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        table = self.positions[...]
        # Only padding and the slack of a cache lie past the table; what is computed there counts for nothing.
        row = lookup(self.weight.get_value(), tokens, table.dtype)
        return row + table[jnp.minimum(positions, table.shape[0] - 1)]

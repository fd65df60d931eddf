"""What layers are built of: attention, feed-forward layers, and the two ways to put norms around them."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from specdec_jax._typing import Array, Float
from specdec_jax.sharding import GROUPS, INNER

from . import rope
from .layers import Linear

Memory = TypeVar("Memory")
Attend = Callable[
    [Float[Array, "B T G R H"], Float[Array, "B T G H"], Float[Array, "B T G H"], float], tuple[Array, Memory]
]
"""``attend(q, k, v, scale) -> (mixed [B, T, G, R, H], memory)``: a layer does not know whether there is a cache."""

Rotary = tuple[Float[Array, "B T half"], Float[Array, "B T half"]] | None
"""Cosines and sines, None for a family whose positions do not turn anything."""


def gelu_tanh(x: Array) -> Array:
    """GELU by way of a tanh, as GPT-2 and Gemma were trained with."""
    return jax.nn.gelu(x, approximate=True)


class Attention(nnx.Module):
    """Grouped queries: R = N / G query heads share the key and value of a group."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        *,
        qkv_bias: bool = False,
        out_bias: bool = False,
        scale: float | None = None,
        q_norm: nnx.Module | None = None,
        k_norm: nnx.Module | None = None,
        stack: tuple[int, ...],
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        """``scale`` multiplies scores, by default ``H ** -0.5``; the norms act on each head, before it is turned."""
        G, H, R = kv_heads, head_size, heads // kv_heads
        # A group's R queries, its key and its value lie together, so that splitting by G splits all of them.
        product = partial(Linear, stack=stack, dtype=dtype, rngs=rngs)
        self.qkv = product(width, (G, R + 2, H), axes=(GROUPS, None, None, None), bias=qkv_bias)
        self.out = product(heads * H, (width,), axes=(None, GROUPS), bias=out_bias)
        self.q_norm = q_norm
        self.k_norm = k_norm
        self.scale = H**-0.5 if scale is None else scale

    def __call__(
        self, x: Float[Array, "B T D"], rotary: Rotary, attend: Attend[Memory]
    ) -> tuple[Float[Array, "B T D"], Memory]:
        qkv = self.qkv(x)
        qk = qkv[:, :, :, :-1]
        if self.q_norm is not None and self.k_norm is not None:
            qk = jnp.concatenate([self.q_norm(qk[:, :, :, :-1]), self.k_norm(qk[:, :, :, -1:])], axis=3)
        if rotary is not None:
            qk = rope.rotate(qk, *rotary)
        mixed, memory = attend(qk[:, :, :, :-1], qk[:, :, :, -1], qkv[:, :, :, -1], self.scale)
        return self.out(mixed.reshape(*x.shape[:2], -1)), memory


class GatedMLP(nnx.Module):
    """``down(activation(gate x) * up x)``."""

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        activation: Callable[[Array], Array],
        bias: bool = False,
        stack: tuple[int, ...],
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        product = partial(Linear, bias=bias, stack=stack, dtype=dtype, rngs=rngs)
        self.gate_up = product(width, (2, inner), axes=(None, INNER, None))
        self.down = product(inner, (width,), axes=(None, INNER))
        self.activation = activation

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        gate_up = self.gate_up(x)
        return self.down(self.activation(gate_up[:, :, 0]) * gate_up[:, :, 1])


class MLP(nnx.Module):
    """``down(activation(up x))``, with biases."""

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        activation: Callable[[Array], Array],
        stack: tuple[int, ...],
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        product = partial(Linear, bias=True, stack=stack, dtype=dtype, rngs=rngs)
        self.up = product(width, (inner,), axes=(INNER, None))
        self.down = product(inner, (width,), axes=(None, INNER))
        self.activation = activation

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return self.down(self.activation(self.up(x)))


class PreNormLayer(nnx.Module):
    """Attention and the feed-forward layer, each behind a norm and added to its input."""

    def __init__(self, *, attention_norm: nnx.Module, attention: nnx.Module, mlp_norm: nnx.Module, mlp: nnx.Module):
        self.attention_norm = attention_norm
        self.attention = attention
        self.mlp_norm = mlp_norm
        self.mlp = mlp

    def __call__(
        self, x: Float[Array, "B T D"], rotary: Rotary, attend: Attend[Memory]
    ) -> tuple[Float[Array, "B T D"], Memory]:
        change, memory = self.attention(self.attention_norm(x), rotary, attend)
        x = x + change
        return x + self.mlp(self.mlp_norm(x)), memory


class SandwichLayer(nnx.Module):
    """The same with a second norm behind each of the two, before it is added."""

    def __init__(
        self,
        *,
        attention_norm: nnx.Module,
        attention: nnx.Module,
        attention_post_norm: nnx.Module,
        mlp_norm: nnx.Module,
        mlp: nnx.Module,
        mlp_post_norm: nnx.Module,
    ):
        self.attention_norm = attention_norm
        self.attention = attention
        self.attention_post_norm = attention_post_norm
        self.mlp_norm = mlp_norm
        self.mlp = mlp
        self.mlp_post_norm = mlp_post_norm

    def __call__(
        self, x: Float[Array, "B T D"], rotary: Rotary, attend: Attend[Memory]
    ) -> tuple[Float[Array, "B T D"], Memory]:
        change, memory = self.attention(self.attention_norm(x), rotary, attend)
        x = x + self.attention_post_norm(change)
        return x + self.mlp_post_norm(self.mlp(self.mlp_norm(x))), memory

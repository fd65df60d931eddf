"""The Llama family: grouped queries, rotary positions, RMS norms, a gated feed-forward layer."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from specdec_jax._typing import Array, Float, Int
from specdec_jax.cache import KVCache

from . import rope
from .attention import attend, attend_all, causal, visible, write
from .layers import Linear, RMSNorm, linear
from .stack import Layout, for_each_layer, make_layers


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
    """The shape of a model of the family (Llama 1 to 3, SmolLM, TinyLlama, Mistral, and their like)."""

    vocab_size: int
    """V, the width of the logits."""
    width: int
    """D."""
    mlp_width: int
    num_layers: int
    num_heads: int
    """N."""
    num_kv_heads: int
    """G, a divisor of N."""
    head_size: int
    """H, which need not be D / N."""
    max_positions: int
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_factors: tuple[float, ...] | None = None
    """What each of the H / 2 rotary frequencies is divided by; `rope.llama3_factors` gives those of Llama 3."""
    tied_head: bool = False
    """The logits use the embedding as their weight."""
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None
    """A token sees itself and the tokens before it, this many in all; None for all of them."""

    def __post_init__(self):
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads} and num_kv_heads {self.num_kv_heads}; expected a multiple of it"
            )
        if self.head_size < 2 or self.head_size % 2:
            raise ValueError(f"head_size is {self.head_size}; expected an even number, for rotary pairs")
        if self.rope_factors is not None and len(self.rope_factors) != self.head_size // 2:
            raise ValueError(
                f"rope_factors has {len(self.rope_factors)} numbers; expected one a pair, {self.head_size // 2}"
            )
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ValueError(f"sliding_window is {self.sliding_window}; expected at least 1, or None")


Memory = TypeVar("Memory")
Attend = Callable[[Float[Array, "B T G R H"], Float[Array, "B T G H"], Float[Array, "B T G H"]], tuple[Array, Memory]]
"""``attend(q, k, v) -> (mixed [B, T, G, R, H], memory)``: a layer does not know whether there is a cache."""


class Layer(nnx.Module):
    """Attention and the feed-forward layer, each behind a norm and added to its input."""

    def __init__(self, config: LlamaConfig, *, stack: tuple[int, ...], dtype: jnp.dtype, rngs: nnx.Rngs):
        D, G, H = config.width, config.num_kv_heads, config.head_size
        R = config.num_heads // G
        common = {"stack": stack, "dtype": dtype}
        self.attention_norm = RMSNorm(D, eps=config.norm_eps, **common)
        # A group's R queries, its key and its value lie together, so that splitting by G splits all of them.
        self.qkv = Linear(D, (G, R + 2, H), bias=config.attention_bias, rngs=rngs, **common)
        self.out = Linear(G * R * H, (D,), bias=config.attention_bias, rngs=rngs, **common)
        self.mlp_norm = RMSNorm(D, eps=config.norm_eps, **common)
        self.gate_up = Linear(D, (2, config.mlp_width), bias=config.mlp_bias, rngs=rngs, **common)
        self.down = Linear(config.mlp_width, (D,), bias=config.mlp_bias, rngs=rngs, **common)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        rotary: tuple[Float[Array, "B T half"], Float[Array, "B T half"]],
        attend: Attend[Memory],
    ) -> tuple[Float[Array, "B T D"], Memory]:
        qkv = self.qkv(self.attention_norm(x))
        qk = rope.rotate(qkv[:, :, :, :-1], *rotary)
        mixed, memory = attend(qk[:, :, :, :-1], qk[:, :, :, -1], qkv[:, :, :, -1])
        x = x + self.out(mixed.reshape(*x.shape[:2], -1))
        gate_up = self.gate_up(self.mlp_norm(x))
        return x + self.down(jax.nn.silu(gate_up[:, :, 0]) * gate_up[:, :, 1]), memory


class Llama(nnx.Module):
    """Token ids to logits, with a cache between calls."""

    def __init__(self, config: LlamaConfig, *, layers: Layout, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.config = config
        self.embedding = Linear(config.width, (config.vocab_size,), dtype=dtype, rngs=rngs)
        self.layers = make_layers(
            lambda stack: Layer(config, stack=stack, dtype=dtype, rngs=rngs), config.num_layers, layers
        )
        self.norm = RMSNorm(config.width, eps=config.norm_eps, dtype=dtype)
        self.head = None if config.tied_head else Linear(config.width, (config.vocab_size,), dtype=dtype, rngs=rngs)

    def __call__(
        self, tokens: Int[Array, "B T"], cache: KVCache, lengths: Int[Array, "B"], hidden_layers: tuple[int, ...] = ()
    ) -> tuple[Float[Array, "B T V"], Float[Array, "B T n D"] | None, KVCache]:
        """Decoding: write the tokens at slots ``lengths ..`` of the cache, and let them see what lies before."""
        positions = lengths[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
        seen = visible(positions, cache.k.shape[3], self.config.sliding_window)

        def attend_over(index, cache, q, k, v):
            cache = write(cache, index, k, v, lengths)
            return attend(q, cache, index, seen), cache

        x, hidden, cache = self._layers(tokens, positions, hidden_layers, attend_over, cache)
        logits = self.logits(self.norm(x)).astype(jnp.float32)
        return logits, hidden if hidden_layers else None, cache

    def features(
        self,
        tokens: Int[Array, "B T"],
        positions: Int[Array, "B T"],
        segments: Int[Array, "B T"],
        hidden_layers: tuple[int, ...] = (),
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B T n D"]]:
        """Whole texts at once, without a cache, to train on: the input of `logits`, and the states after some layers.

        A token sees those before it in the same segment; a row may hold several texts.
        """
        mask = causal(positions, segments, self.config.sliding_window)

        def attend_within(index, nothing, q, k, v):
            return attend_all(q, k, v, mask), nothing

        x, hidden, _ = self._layers(tokens, positions, hidden_layers, attend_within, None)
        return self.norm(x), hidden

    def logits(self, features: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """The head, in the parameters' dtype."""
        head = self.embedding if self.head is None else self.head
        return linear(features, head.weight[...])

    def _layers(self, tokens, positions, hidden_layers, attend_with, memory):
        """All layers over the tokens; ``attend_with(index, memory, q, k, v) -> (mixed, memory)``."""
        config = self.config
        rotary = rope.tables(positions, rope.frequencies(config.head_size, config.rope_theta, config.rope_factors))
        wanted = jnp.asarray(hidden_layers, jnp.int32)[None, None, :, None]

        def step(layer, index, carry):
            x, hidden, memory = carry
            x, memory = layer(x, rotary, partial(attend_with, index, memory))
            return x, jnp.where(wanted == index, x[:, :, None], hidden), memory

        x = self.embedding.weight[...][tokens]
        hidden = jnp.zeros((*tokens.shape, len(hidden_layers), config.width), x.dtype)
        return for_each_layer(self.layers, config.num_layers, step, (x, hidden, memory))

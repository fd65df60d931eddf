"""The decoder that every family is: an embedding, layers, a norm and a head, with a cache or without."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from specdec_jax._typing import Array, Float, Int
from specdec_jax.cache import KVCache

from .attention import Attend, attend, attend_all, causal, over_cache, visible_by
from .layers import Embedding, Linear, PositionedEmbedding, linear
from .rope import Rope
from .stack import for_each_layer

T = TypeVar("T")


class Kind(NamedTuple):
    """What sets layers of one model apart, beside their weights."""

    window: int | None = None
    """A token sees itself and the tokens before it, this many in all; None for all of them."""
    rope: Rope | None = None
    """None where positions do not turn queries and keys."""


class Decoder(nnx.Module):
    """Token ids to logits. A family makes the modules and says of which kind each layer is."""

    def __init__(
        self,
        *,
        embedding: Embedding | PositionedEmbedding,
        layers: nnx.Module,
        kinds: Sequence[Kind],
        norm: nnx.Module,
        head: Linear | None,
    ):
        """``embedding(tokens, positions) -> x``, ``layer(x, rotary, attend) -> (x, memory)`` as in `blocks`.

        A ``head`` of None uses the embedding's weight.
        """
        self.embedding = embedding
        self.layers = layers
        self.norm = norm
        self.head = head
        self.kinds = tuple(dict.fromkeys(kinds))
        self.kind_of = tuple(self.kinds.index(kind) for kind in kinds)

    def __call__(
        self,
        tokens: Int[Array, "B T"],
        cache: KVCache,
        lengths: Int[Array, "B"],
        hidden_layers: tuple[int, ...] = (),
        depth: int | None = None,
        attention: Attend = attend,
    ) -> tuple[Float[Array, "B T V"], Float[Array, "B T n D"] | None, KVCache]:
        """Decoding: write the tokens at slots ``lengths ..`` of the cache, and let them see what lies before.

        With a ``depth`` only so many layers run, and the others' slots of the cache stay as they are. ``attention`` is
        the kernel, see `attention_kernels`.
        """
        positions = lengths[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
        windows = [kind.window for kind in self.kinds]
        seen_by = self._of_layer(visible_by(windows, positions, cache.k.shape[3]))

        def attend_over(index, cache, q, k, v, scale):
            return over_cache(attention, q, k, v, cache, index, seen_by(index), scale=scale)

        x, hidden, cache = self._layers(tokens, positions, hidden_layers, attend_over, cache, depth)
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
        mask_of = self._of_layer([causal(positions, segments, kind.window) for kind in self.kinds])

        def attend_within(index, nothing, q, k, v, scale):
            return attend_all(q, k, v, mask_of(index), scale=scale), nothing

        x, hidden, _ = self._layers(tokens, positions, hidden_layers, attend_within, None)
        return self.norm(x), hidden

    def logits(self, features: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """The head, in the parameters' dtype."""
        head = self.embedding if self.head is None else self.head
        return linear(features, head.weight.get_value())

    def _layers(self, tokens, positions, hidden_layers, attend_with, memory, depth=None):
        """The layers over the tokens; ``attend_with(index, memory, q, k, v, scale) -> (mixed, memory)``."""
        rotary_of = self._of_layer([None if kind.rope is None else kind.rope.tables(positions) for kind in self.kinds])
        wanted = jnp.asarray(hidden_layers, jnp.int32)[None, None, :, None]

        def step(layer, index, carry):
            x, hidden, memory = carry
            x, memory = layer(x, rotary_of(index), partial(attend_with, index, memory))
            return x, jnp.where(wanted == index, x[:, :, None], hidden), memory

        x = self.embedding(tokens, positions)
        hidden = jnp.zeros((*tokens.shape, len(hidden_layers), x.shape[-1]), x.dtype)
        return for_each_layer(self.layers, depth or len(self.kind_of), step, (x, hidden, memory))

    def _of_layer(self, options: Sequence[T]) -> Callable[[Array | int], T]:
        """From what each kind of layer has to what a layer has, by an index that a scan traces."""
        if len(options) == 1:
            return lambda index: options[0]
        together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *options)
        kind_of = jnp.asarray(self.kind_of, jnp.int32)

        def choose(index: Array | int) -> T:
            if isinstance(index, int):
                return options[self.kind_of[index]]
            return jax.tree.map(lambda leaf: leaf[kind_of[index]], together)

        return choose

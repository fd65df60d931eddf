"""The network of a feature head: it reads a target's states and the token after them (EAGLE-3's, with other details).

The states of a few layers are fused into one feature; feature and token embedding, each normalised, are mixed into the
input of one or a few decoder layers; what comes out of these is the next feature, and, through a norm and a head over
the draft vocabulary, what the head says comes next. The embedding is the target's own, and stays as it is.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from flax import nnx

from specdec_jax._typing import Array, Float, Int, PRNGKeyArray, PyTree
from specdec_jax.cache import KVCache, init_cache
from specdec_jax.lm import FeatureModel

from .attention import over_cache, visible
from .attention_kernels import find
from .family import Build
from .gated import gated_block
from .int8 import lookup
from .layers import Linear, RMSNorm
from .llama import LlamaConfig
from .rope import Rope


@dataclasses.dataclass(frozen=True)
class FeatureHeadConfig:
    """The shape of a head."""

    layer: LlamaConfig
    """Of its layers: ``width`` is D, ``num_layers`` their number, ``vocab_size`` the target's V."""
    hidden_layers: tuple[int, ...]
    """The layers of the target whose states it reads."""
    hidden_width: int
    """Of the target's states."""
    draft_vocab_size: int
    """Tokens that it can guess, at most V."""

    def __post_init__(self):
        if not self.hidden_layers:
            raise ValueError("hidden_layers is empty; expected at least one layer of the target to read")
        if not 0 < self.draft_vocab_size <= self.layer.vocab_size:
            raise ValueError(
                f"draft_vocab_size is {self.draft_vocab_size}; expected 1 to {self.layer.vocab_size}, the target's "
                "vocabulary"
            )


class FeatureHead(nnx.Module):
    """All but the embedding, which `embed` is given."""

    def __init__(self, config: FeatureHeadConfig, *, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.config = config
        D, eps = config.layer.width, config.layer.norm_eps
        self.fusion = Linear(len(config.hidden_layers) * config.hidden_width, (D,), dtype=dtype, rngs=rngs)
        self.feature_norm = RMSNorm(D, eps=eps, dtype=dtype)
        self.token_norm = RMSNorm(config.hidden_width, eps=eps, dtype=dtype)
        self.mixing = Linear(D + config.hidden_width, (D,), dtype=dtype, rngs=rngs)
        build = Build("unrolled", dtype, rngs)
        self.layers = nnx.List([gated_block(config.layer, build, ()) for _ in range(config.layer.num_layers)])
        self.norm = RMSNorm(D, eps=eps, dtype=dtype)
        self.head = Linear(D, (config.draft_vocab_size,), dtype=dtype, rngs=rngs)

    def fuse(self, hidden: Float[Array, "B T n E"]) -> Float[Array, "B T D"]:
        """The target's states as one feature."""
        return self.fusion(hidden.reshape(*hidden.shape[:2], -1).astype(self.norm.weight[...].dtype))

    def __call__(
        self,
        features: Float[Array, "B T D"],
        embeddings: Float[Array, "B T E"],
        positions: Int[Array, "B T"],
        attend_with: Callable[..., tuple[Array, PyTree]],
        memory: PyTree,
    ) -> tuple[Float[Array, "B T D"], PyTree]:
        """Pairs to features; ``attend_with(index, memory, q, k, v, scale) -> (mixed, memory)`` a layer."""
        config = self.config.layer
        rotary = Rope(config.head_size, config.rope_theta, config.rope_factors).tables(positions)
        x = self.mixing(jnp.concatenate([self.feature_norm(features), self.token_norm(embeddings)], axis=-1))
        for index, layer in enumerate(self.layers):
            x, memory = layer(x, rotary, functools.partial(attend_with, index, memory))
        return x, memory

    def draft_logits(self, features: Float[Array, "B T D"]) -> Float[Array, "B T Vd"]:
        """Over the draft vocabulary, in float32."""
        return self.head(self.norm(features)).astype(jnp.float32)


def init_head_params(
    config: FeatureHeadConfig, key: PRNGKeyArray, draft_ids: Int[np.ndarray, "Vd"], target_head: Float[Array, "V E"]
) -> PyTree:
    """Random parameters, float32; the head starts as the target's rows for ``draft_ids``, where the widths agree."""
    head = FeatureHead(config, dtype=jnp.dtype(jnp.float32), rngs=nnx.Rngs(params=key))
    params = nnx.to_pure_dict(nnx.state(head))
    if target_head.shape[1] == config.layer.width:
        params["head"]["weight"] = target_head[jnp.asarray(draft_ids)].astype(jnp.float32)
    return params


@functools.cache
def head_graph(config: FeatureHeadConfig, dtype: jnp.dtype) -> nnx.GraphDef:
    """What `nnx.merge` needs beside the parameters."""
    return nnx.graphdef(nnx.eval_shape(lambda: FeatureHead(config, dtype=dtype, rngs=nnx.Rngs(0))))


@functools.cache
def feature_model(config: FeatureHeadConfig, dtype: jnp.dtype, max_positions: int | None = None) -> FeatureModel:
    """The head as decoding uses it.

    Its params are ``{"head": parameters, "embedding": the target's [V, E], "draft_place": [V]}``, where ``draft_place``
    is a token's place in the draft vocabulary, or draft_vocab_size for a token that is none of it.
    """
    graph = head_graph(config, dtype)
    shape = config.layer
    attention = find("auto")

    def init(batch: int, slots: int) -> tuple[KVCache, Array]:
        slots = attention.slots(slots)
        cache = init_cache(shape.num_layers, batch, shape.num_kv_heads, slots, shape.head_size, dtype)
        return cache, jnp.zeros((batch, shape.width), dtype)

    def fuse(params: PyTree, hidden: Float[Array, "B T n E"]) -> Float[Array, "B T D"]:
        return nnx.merge(graph, params["head"]).fuse(hidden)

    def apply(
        params: PyTree,
        features: Float[Array, "B T D"],
        tokens: Int[Array, "B T"],
        cache: KVCache,
        lengths: Int[Array, "B"],
    ) -> tuple[Float[Array, "B T D"], KVCache]:
        positions = lengths[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
        seen = visible(positions, cache.k.shape[3], shape.sliding_window)

        def attend_over(index, cache, q, k, v, scale):
            return over_cache(attention.attend, q, k, v, cache, index, seen, scale=scale)

        embeddings = lookup(params["embedding"], tokens, dtype).astype(dtype)
        return nnx.merge(graph, params["head"])(features, embeddings, positions, attend_over, cache)

    def logits(params: PyTree, features: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        known = nnx.merge(graph, params["head"]).draft_logits(features)
        known = jnp.pad(known, ((0, 0), (0, 0), (0, 1)), constant_values=-jnp.inf)
        return jnp.take(known, params["draft_place"], axis=-1)

    return FeatureModel(init, fuse, apply, logits, shape.vocab_size, max_positions)


def draft_places(draft_ids: Int[np.ndarray, "Vd"], vocab_size: int) -> Int[Array, "V"]:
    """Each token's place in the draft vocabulary, len(draft_ids) for those outside of it."""
    places = np.full(vocab_size, len(draft_ids), np.int32)
    places[draft_ids] = np.arange(len(draft_ids), dtype=np.int32)
    return jnp.asarray(places)

"""A family's NNX module as a LanguageModel: two pure functions over plain arrays."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from specdec_jax._typing import Array, Float, Int, PRNGKeyArray, PyTree
from specdec_jax.cache import KVCache, init_cache
from specdec_jax.lm import LanguageModel
from specdec_jax.sharding import AnyMesh, shardings

from .attention_kernels import Kernel, KernelName, find
from .config import DecoderConfig
from .decoder import Decoder
from .family import Build
from .int8 import Weights, checked, in_int8, matrices, places_in_int8, refuse_int8
from .registry import family_of_config
from .stack import Layout, resolve
from .weights import is_stacked


def default_dtype() -> jnp.dtype:
    """Of parameters and cache: float32 where JAX's default backend is the CPU, bfloat16 on accelerators."""
    return jnp.dtype(jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16)


def checked_dtype(dtype: DTypeLike | None) -> jnp.dtype:
    """The `default_dtype` for None; a ValueError for one that models do not compute in."""
    dtype = default_dtype() if dtype is None else jnp.dtype(dtype)
    if dtype not in (jnp.float32, jnp.bfloat16):
        raise ValueError(f"dtype is {dtype}; expected float32 or bfloat16")
    return dtype


def model_from_config(
    config: DecoderConfig,
    *,
    dtype: DTypeLike | None = None,
    layers: Layout = "auto",
    hidden_layers: tuple[int, ...] | None = None,
    num_tokens: int | None = None,
    holes: tuple[int, ...] = (),
    depth: int | None = None,
    attention: KernelName | Kernel = "auto",
) -> LanguageModel:
    """The model of a config, for params of the same ``dtype`` and ``layers``.

    Args:
        config: its shape.
        dtype: of parameters and cache, float32 or bfloat16; by default `default_dtype`. Logits are float32 anyway.
        layers: how its layers are held and run, see `stack.Layout`.
        hidden_layers: ``apply`` also returns the states after these layers, [B, T, n, D] in this order: 0 is the first
            layer, -1 the last, before the final norm. By default none are returned.
        num_tokens: ids from this one up are padding of the vocabulary and get a logit of -inf.
        holes: ids that have no token either, in any place; so do they.
        depth: run only the first so many layers, then the norm and the head. It takes the params and the cache of the
            whole model, so that it can draft for it: `specdec_jax.early_exit`.
        attention: what attends over the cache, see `attention_kernels.KernelName`.

    Equal arguments give the same model, so what was compiled for one set of weights serves the next.
    """
    dtype = checked_dtype(dtype)
    L = config.num_layers
    hidden = _places(hidden_layers or (), L)
    if num_tokens is not None and not 0 < num_tokens <= config.vocab_size:
        raise ValueError(f"num_tokens is {num_tokens}; expected 1 to {config.vocab_size}, the width of the logits")
    if not all(0 <= hole < config.vocab_size for hole in holes):
        raise ValueError(f"holes are {holes}; expected ids from 0 to {config.vocab_size - 1}")
    if depth is not None and not 0 < depth <= L:
        raise ValueError(f"depth is {depth}, but the model has {L} layers; expected 1 to {L}")
    return _model(config, dtype, resolve(layers), hidden, num_tokens, holes, depth, find(attention))


def _places(hidden_layers: tuple[int, ...], L: int) -> tuple[int, ...]:
    for layer in hidden_layers:
        if not -L <= layer < L:
            raise ValueError(f"hidden_layers has {layer}, but the model has {L} layers; expected {-L} to {L - 1}")
    return tuple(layer % L for layer in hidden_layers)


class TextModel(NamedTuple):
    """A model as training uses it: whole texts at once, differentiable, no cache."""

    features: Callable[..., tuple[Array, Array]]
    """``(params, tokens, positions, segments: all [B, T]) -> (features [B, T, D], hidden [B, T, n, D])``: the input of
    the head, and the states after the layers asked for. Tokens see those of their own segment only."""
    logits: Callable[[PyTree, Array], Array]
    """``(params, features [B, T, D]) -> float32 [B, T, V]``"""


def text_model_from_config(
    config: DecoderConfig,
    *,
    dtype: DTypeLike | None = None,
    layers: Layout = "auto",
    hidden_layers: tuple[int, ...] = (),
) -> TextModel:
    """The same model as `model_from_config`, and for the same params, to train with or to learn from."""
    dtype = default_dtype() if dtype is None else jnp.dtype(dtype)
    graphdef = nnx.graphdef(_abstract(config, dtype, resolve(layers)))
    hidden = _places(hidden_layers, config.num_layers)

    def features(params: PyTree, tokens, positions, segments) -> tuple[Array, Array]:
        return nnx.merge(graphdef, params).features(tokens, positions, segments, hidden)

    def logits(params: PyTree, features) -> Array:
        return nnx.merge(graphdef, params).logits(features).astype(jnp.float32)

    return TextModel(features, logits)


def init_params(
    config: DecoderConfig, key: PRNGKeyArray, *, dtype: DTypeLike | None = None, layers: Layout = "auto"
) -> PyTree:
    """Random parameters for `model_from_config`: nested dicts of arrays. The key is consumed."""
    dtype = default_dtype() if dtype is None else jnp.dtype(dtype)
    return nnx.to_pure_dict(nnx.state(_build(config, dtype, resolve(layers), nnx.Rngs(params=key))))


def param_shapes(
    config: DecoderConfig,
    *,
    dtype: DTypeLike | None = None,
    layers: Layout = "auto",
    weights: Weights = "float",
) -> PyTree:
    """The parameters' shapes and dtypes, for which nothing is computed; `Int8Weight`s of them where they are int8."""
    dtype = default_dtype() if dtype is None else jnp.dtype(dtype)
    abstract = _abstract(config, dtype, resolve(layers))
    state = nnx.to_pure_dict(nnx.state(abstract))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    if checked(weights) == "float":
        return shapes
    return jax.eval_shape(lambda params: in_int8(params, matrices(abstract)), shapes)


def param_shardings(
    config: DecoderConfig,
    mesh: AnyMesh,
    *,
    layers: Layout = "auto",
    whole: bool = False,
    weights: Weights = "float",
) -> PyTree:
    """Where each parameter lies: cut over the mesh's ``tensor`` devices, or ``whole`` on each of them.

    Whole is for a drafter so small that its all-reduces would take longer than reading its weights.
    """
    shapes = param_shapes(config, layers=layers)
    abstract = _abstract(config, default_dtype(), resolve(layers))
    if whole:
        found = jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec()), shapes)
    else:
        state = nnx.state(abstract)
        axes = nnx.to_pure_dict(state, lambda leaf: leaf.get_metadata().get("axes", PartitionSpec()))
        found = shardings(shapes, mesh, axes)
    return found if checked(weights) == "float" else places_in_int8(found, matrices(abstract))


def quantised(config: DecoderConfig, params: PyTree) -> PyTree:
    """The parameters with their matrices in int8, for the same model: half the bytes of bfloat16.

    It can be traced. `load` rounds as it reads, and never holds more than one matrix in floats.
    """
    refuse_int8(params, "rounding to int8")
    layers = "stacked" if is_stacked(params) else "unrolled"
    return in_int8(params, matrices(_abstract(config, default_dtype(), layers)))


def dtype_of(params: PyTree) -> jnp.dtype:
    """That the model of these parameters computes in, whatever its matrices are held in."""
    return params["norm"]["weight"].dtype


def _build(config: DecoderConfig, dtype: jnp.dtype, layers: Layout, rngs: nnx.Rngs) -> Decoder:
    return family_of_config(config).build(config, Build(layers, dtype, rngs))


def _abstract(config: DecoderConfig, dtype: jnp.dtype, layers: Layout) -> Decoder:
    return nnx.eval_shape(lambda: _build(config, dtype, layers, nnx.Rngs(0)))


@functools.cache
def _model(
    config: DecoderConfig,
    dtype: jnp.dtype,
    layers: Layout,
    hidden_layers: tuple[int, ...],
    num_tokens: int | None,
    holes: tuple[int, ...],
    depth: int | None,
    attention: Kernel,
) -> LanguageModel:
    graphdef = nnx.graphdef(_abstract(config, dtype, layers))

    def new_cache(batch: int, capacity: int) -> KVCache:
        slots = attention.slots(capacity)
        return init_cache(config.num_layers, batch, config.num_kv_heads, slots, config.head_size, dtype)

    def apply(
        params: PyTree, tokens: Int[Array, "B T"], cache: KVCache, lengths: Int[Array, "B"]
    ) -> tuple[Float[Array, "B T V"], Float[Array, "B T n D"] | None, KVCache]:
        decoder = nnx.merge(graphdef, params)
        logits, hidden, cache = decoder(tokens, cache, lengths, hidden_layers, depth, attention.attend)
        if num_tokens is not None and num_tokens < config.vocab_size:
            padding = jnp.arange(config.vocab_size, dtype=jnp.int32) >= num_tokens
            logits = jnp.where(padding[None, None], -jnp.inf, logits)
        if holes:
            missing = np.isin(np.arange(config.vocab_size), holes)
            logits = jnp.where(missing[None, None], -jnp.inf, logits)
        return logits, hidden, cache

    return LanguageModel(new_cache, apply, config.vocab_size, config.max_positions)

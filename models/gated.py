"""The decoder that Llama, Mistral, Qwen and Phi-3 share: RMS norms in front, grouped queries, a gated SiLU layer."""

from collections.abc import Sequence

import jax

from .blocks import Attention, GatedMLP, PreNormLayer
from .config import RotaryConfig
from .decoder import Decoder, Kind
from .family import Build
from .layers import Embedding, RMSNorm, head
from .leaves import Heads, Spec, around, gated_layer, head_norms, pre_norms
from .stack import make_layers


def gated_block(
    config: RotaryConfig,
    build: Build,
    stack: tuple[int, ...],
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    norm_heads: bool = False,
) -> PreNormLayer:
    """One layer, or a stack of them; ``norm_heads`` puts an RMS norm on each head's query and key."""
    dtype, rngs = build.dtype, build.rngs

    def norm(size: int) -> RMSNorm:
        return RMSNorm(size, eps=config.norm_eps, stack=stack, dtype=dtype)

    return PreNormLayer(
        attention_norm=norm(config.width),
        attention=Attention(
            config.width,
            config.num_heads,
            config.num_kv_heads,
            config.head_size,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            q_norm=norm(config.head_size) if norm_heads else None,
            k_norm=norm(config.head_size) if norm_heads else None,
            stack=stack,
            dtype=dtype,
            rngs=rngs,
        ),
        mlp_norm=norm(config.width),
        mlp=GatedMLP(
            config.width, config.mlp_width, activation=jax.nn.silu, bias=mlp_bias, stack=stack, dtype=dtype, rngs=rngs
        ),
    )


def gated_decoder(config: RotaryConfig, build: Build, kinds: Sequence[Kind], **options: bool) -> Decoder:
    """``options`` are those of `gated_block`."""
    dtype, rngs = build.dtype, build.rngs
    return Decoder(
        embedding=Embedding(config.vocab_size, config.width, dtype=dtype, rngs=rngs),
        layers=make_layers(lambda stack: gated_block(config, build, stack, **options), config.num_layers, build.layers),
        kinds=kinds,
        norm=RMSNorm(config.width, eps=config.norm_eps, dtype=dtype),
        head=None if config.tied_head else head(config.width, config.vocab_size, dtype=dtype, rngs=rngs),
    )


def heads_of(config: RotaryConfig) -> Heads:
    """How its queries are grouped."""
    return Heads(config.num_heads, config.num_kv_heads, config.head_size)


def gated_spec(
    config: RotaryConfig,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    norm_heads: bool = False,
) -> Spec:
    """Where the parameters of `gated_decoder` stand in files that have each product in a tensor of its own."""
    layer = [
        *pre_norms(config.width),
        *gated_layer(
            heads_of(config),
            config.width,
            config.mlp_width,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            mlp_bias=mlp_bias,
        ),
    ]
    if norm_heads:
        layer += head_norms(config.head_size)
    top = around(config.vocab_size, config.width, tied_head=config.tied_head)
    return Spec(top, layer, "model.layers.{}.", config.num_layers)

"""Gemma 3, its text: norms on both sides of each block, windowed layers with a RoPE of their own among global ones."""

import dataclasses
from typing import Any

import numpy as np
from flax import nnx

from . import hf_config
from .blocks import Attention, GatedMLP, SandwichLayer, gelu_tanh
from .config import RotaryConfig, check_factors, check_windowed, every
from .decoder import Decoder, Kind
from .errors import LoadError
from .family import Build, Family
from .gated import heads_of
from .gguf_file import GGUFFile
from .gguf_weights import AS_IT_IS, LAYER, Mend, Metadata
from .gguf_weights import tensors_from_gguf as renamed_tensors
from .layers import Embedding, OffsetRMSNorm, head
from .leaves import Spec, around, gated_layer, head_norms, same
from .rope import Rope
from .stack import make_layers
from .weights import Tensors, renamed

_GGUF_LAYER = LAYER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_PATTERN = 6
"""Every sixth layer is global, where a file says nothing."""
_LAYERS_OF_27B = 62
_VISION = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
# Prefixes of the text model inside the one that also sees, and what its own files have instead.
_INSIDE = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
)
# What transformers takes for whatever a config.json leaves out, as those of the larger models do.
_DEFAULTS = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "sliding_window": 4096,
}


@dataclasses.dataclass(frozen=True)
class Gemma3Config(RotaryConfig):
    """The shape of a model of the family."""

    norm_eps: float = 1e-6
    rope_theta: float = 1e6
    """Of global layers."""
    tied_head: bool = True
    rope_factors: tuple[float, ...] | None = None
    """What each of the H / 2 rotary frequencies of global layers is divided by."""
    local_rope_theta: float = 10000.0
    """Of layers with the window."""
    sliding_window: int | None = None
    """A token sees itself and the tokens before it, this many in all, in the layers that ``windowed`` says."""
    windowed: tuple[bool, ...] = ()
    """For each layer; empty without a window."""
    query_scalar: float = 256.0
    """Scores are divided by its root."""
    attention_bias: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_factors(self.rope_factors, self.head_size)
        check_windowed(self.windowed, self.sliding_window, self.num_layers)
        if self.query_scalar <= 0:
            raise ValueError(f"query_scalar is {self.query_scalar}; expected a positive number")


def build(config: Gemma3Config, build: Build) -> Decoder:
    dtype, rngs, D = build.dtype, build.rngs, config.width

    def layer(stack: tuple[int, ...]) -> nnx.Module:
        def norm(size: int) -> OffsetRMSNorm:
            return OffsetRMSNorm(size, eps=config.norm_eps, stack=stack, dtype=dtype)

        return SandwichLayer(
            attention_norm=norm(D),
            attention=Attention(
                D,
                config.num_heads,
                config.num_kv_heads,
                config.head_size,
                qkv_bias=config.attention_bias,
                out_bias=config.attention_bias,
                scale=config.query_scalar**-0.5,
                q_norm=norm(config.head_size),
                k_norm=norm(config.head_size),
                stack=stack,
                dtype=dtype,
                rngs=rngs,
            ),
            attention_post_norm=norm(D),
            mlp_norm=norm(D),
            mlp=GatedMLP(D, config.mlp_width, activation=gelu_tanh, stack=stack, dtype=dtype, rngs=rngs),
            mlp_post_norm=norm(D),
        )

    size = config.head_size
    wide = Kind(None, Rope(size, config.rope_theta, config.rope_factors))
    near = Kind(config.sliding_window, Rope(size, config.local_rope_theta))
    return Decoder(
        embedding=Embedding(config.vocab_size, D, scale=D**0.5, dtype=dtype, rngs=rngs),
        layers=make_layers(layer, config.num_layers, build.layers),
        kinds=[near if has else wide for has in config.windowed or (False,) * config.num_layers],
        norm=OffsetRMSNorm(D, eps=config.norm_eps, dtype=dtype),
        head=None if config.tied_head else head(D, config.vocab_size, dtype=dtype, rngs=rngs),
    )


def spec(config: Gemma3Config) -> Spec:
    D, bias = config.width, config.attention_bias
    norms = {
        "attention_norm": "input_layernorm",
        "attention_post_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    }
    layer = [
        *(same(f"{path}.weight", f"{name}.weight", (D,)) for path, name in norms.items()),
        *gated_layer(heads_of(config), D, config.mlp_width, qkv_bias=bias, out_bias=bias, mlp_bias=False),
        *head_norms(config.head_size),
    ]
    return Spec(around(config.vocab_size, D, tied_head=config.tied_head), layer, "model.layers.{}.", config.num_layers)


def config_from_hf(raw: hf_config.Raw) -> Gemma3Config:
    """Of the text model, or of the text inside a model that also sees."""
    hf_config.refuse_quantised(raw)
    raw = raw.get("text_config") or raw
    raw = _DEFAULTS | {key: value for key, value in raw.items() if value is not None or key == "sliding_window"}
    hf_config.check_activation(raw, "hidden_activation", "gelu_pytorch_tanh", ("gelu_pytorch_tanh",))
    hf_config.refuse(raw, attn_logit_softcapping=None, final_logit_softcapping=None, use_bidirectional_attention=False)
    shape = hf_config.rotary_shape(raw)
    ropes = raw.get("rope_parameters") or {}
    wide = ropes.get("full_attention") or raw.get("rope_scaling") or {}
    near = ropes.get("sliding_attention") or {}
    if hf_config.factors(near, shape["head_size"], 1.0) is not None:
        raise LoadError("config.json scales the frequencies of sliding layers; expected the rope type default there")
    theta = float(wide.get("rope_theta") or raw.get("rope_theta") or 1e6)
    types = raw.get("layer_types")
    if types is None:
        pattern = hf_config.integer(raw, "sliding_window_pattern", _PATTERN)
        windowed = every(pattern, shape["num_layers"])
    else:
        windowed = hf_config.layer_types(types, shape["num_layers"])
    if not any(windowed):
        raw["sliding_window"] = None
    elif raw["sliding_window"] is None:
        raise LoadError("sliding_window is null in config.json, but it has sliding layers; expected a positive integer")
    return Gemma3Config(
        **shape,
        rope_theta=theta,
        rope_factors=hf_config.factors(wide, shape["head_size"], theta),
        local_rope_theta=float(near.get("rope_theta") or raw.get("rope_local_base_freq") or 10000.0),
        sliding_window=None if raw["sliding_window"] is None else hf_config.integer(raw, "sliding_window"),
        windowed=() if raw["sliding_window"] is None else windowed,
        query_scalar=hf_config.number(raw, "query_pre_attn_scalar", 256.0),
        attention_bias=hf_config.boolean(raw, "attention_bias", False),
    )


def config_to_hf(config: Gemma3Config) -> dict[str, Any]:
    # transformers takes a whole number; no model has another.
    scalar = int(config.query_scalar) if config.query_scalar == int(config.query_scalar) else config.query_scalar
    wide = hf_config.rope_parameters(config.head_size, config.rope_theta, config.rope_factors)
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        **hf_config.rotary_to_hf(config),
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {
            "full_attention": wide,
            "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_theta},
        },
        **hf_config.rope_of_transformers_4(wide),
        "rope_local_base_freq": config.local_rope_theta,
        # transformers wants a number even where no layer has the window.
        "sliding_window": config.sliding_window or config.max_positions,
        "layer_types": hf_config.windowed_to_hf(config.windowed, config.num_layers),
        "query_pre_attn_scalar": scalar,
        "attention_bias": config.attention_bias,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    }


def tensors_from_hf(tensors: Tensors) -> Tensors:
    """The text inside a model that also sees, without the rest of it."""

    def rename(name: str) -> str | None:
        if name.startswith(_VISION):
            return None
        for prefix, instead in _INSIDE:
            if name.startswith(prefix):
                return instead + name.removeprefix(prefix)
        return name

    return renamed(tensors, rename)


def config_from_gguf(file: GGUFFile) -> Gemma3Config:
    data = Metadata(file, "gemma3")
    shape = data.shape()
    size, count = shape["head_size"], shape["num_layers"]
    data.check_head_size(size, ("attention.value_length", "rope.dimension_count"))
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        if data.get(key, 0):
            raise LoadError(f"gemma3.{key} of {file.path} is {data.get(key)}, which is not supported; expected none")
    window = data.window()
    # Only the largest of the family divides by something else than the head size, and files do not say so.
    scalar = shape["width"] / shape["num_heads"] if count == _LAYERS_OF_27B else size
    return Gemma3Config(
        **shape,
        norm_eps=data.norm_eps(),
        rope_theta=float(data.get("rope.freq_base", 1e6)),
        rope_factors=data.rope_factors(size),
        local_rope_theta=float(data.get("rope.freq_base_swa", 10000.0)),
        tied_head=data.tied_head(),
        sliding_window=window,
        windowed=() if window is None else data.windowed(count) or every(_PATTERN, count),
        query_scalar=float(scalar),
    )


def tensors_from_gguf(file: GGUFFile, config: Gemma3Config) -> Tensors:
    # A file holds what norms multiply by, which is 1 more than the weight.
    less = Mend(lambda rows: rows - np.float32(1))

    def mend(name: str) -> Mend:
        return less if name.endswith("norm.weight") else AS_IT_IS

    return renamed_tensors(file, spec(config), layer=_GGUF_LAYER, mend=mend)


GEMMA3 = Family(
    config=Gemma3Config,
    build=build,
    config_from_hf=config_from_hf,
    config_to_hf=config_to_hf,
    config_from_gguf=config_from_gguf,
    tensors_from_gguf=tensors_from_gguf,
    spec=spec,
    tensors_from_hf=tensors_from_hf,
)

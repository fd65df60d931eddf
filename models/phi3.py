"""Phi-3: Llama with fused products in its files, and heads of which only a part may turn. LongRoPE is refused."""

import dataclasses
from typing import Any

from . import hf_config
from .config import RotaryConfig, check_window
from .decoder import Decoder, Kind
from .errors import LoadError
from .family import Build, Family
from .gated import gated_decoder, heads_of
from .gguf_file import GGUFFile
from .gguf_weights import LAYER, Metadata
from .gguf_weights import tensors_from_gguf as renamed_tensors
from .leaves import Spec, around, joined, pre_norms, same, stacked
from .rope import Rope
from .weights import Tensors

_GGUF_LAYER = LAYER | {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
_LONG = ("longrope", "su", "yarn")  # transformers takes all three for the first


@dataclasses.dataclass(frozen=True)
class Phi3Config(RotaryConfig):
    """The shape of a model of the family."""

    rotary_size: int | None = None
    """Coordinates of a head that turn, the first ones; None for all."""
    sliding_window: int | None = None
    """A token sees itself and the tokens before it, this many in all; None for all of them."""

    def __post_init__(self):
        super().__post_init__()
        check_window(self.sliding_window)
        size = self.rotary_size
        if size is not None and (size % 2 or not 2 <= size <= self.head_size):
            raise ValueError(f"rotary_size is {size}; expected an even number from 2 to head_size, {self.head_size}")


def build(config: Phi3Config, build: Build) -> Decoder:
    kind = Kind(config.sliding_window, Rope(config.rotary_size or config.head_size, config.rope_theta))
    return gated_decoder(config, build, [kind] * config.num_layers)


def spec(config: Phi3Config) -> Spec:
    D, F = config.width, config.mlp_width
    layer = [
        *pre_norms(D),
        joined(heads_of(config).leaf("attention.qkv.weight", "qkv", (D,)), "self_attn.qkv_proj.weight"),
        same("attention.out.weight", "self_attn.o_proj.weight", (D, config.num_heads * config.head_size)),
        joined(stacked("mlp.gate_up.weight", ("gate", "up"), (F, D)), "mlp.gate_up_proj.weight"),
        same("mlp.down.weight", "mlp.down_proj.weight", (D, F)),
    ]
    return Spec(around(config.vocab_size, D, tied_head=config.tied_head), layer, "model.layers.{}.", config.num_layers)


def config_from_hf(raw: hf_config.Raw) -> Phi3Config:
    raw = {"rms_norm_eps": 1e-5, **raw}  # what transformers takes where nothing is said
    hf_config.refuse_quantised(raw)
    hf_config.check_activation(raw, "hidden_act", "silu", ("silu", "swish"))
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = scaling.get("rope_type") or scaling.get("type")
    if kind in _LONG:
        raise LoadError(
            f"config.json has the rope type {kind}, a kind of LongRoPE, which is not supported; expected a model of "
            "the original context, such as Phi-3-mini-4k"
        )
    shape = hf_config.rotary_shape(raw)
    turning = hf_config.rope_settings(raw, shape["head_size"])
    if turning.factors is not None:
        raise LoadError("config.json scales the frequencies of a phi3 model; expected the rope type default")
    turned = None if turning.turned == 1 else int(shape["head_size"] * turning.turned)
    window = None if raw.get("sliding_window") is None else hf_config.integer(raw, "sliding_window")
    return Phi3Config(**shape, rope_theta=turning.theta, rotary_size=turned, sliding_window=window)


def config_to_hf(config: Phi3Config) -> dict[str, Any]:
    size = config.rotary_size or config.head_size
    return {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        **hf_config.rotary_to_hf(config),
        "hidden_act": "silu",
        "original_max_position_embeddings": config.max_positions,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": config.rope_theta,
            "partial_rotary_factor": size / config.head_size,
        },
        # As transformers 4 reads it.
        "rope_theta": config.rope_theta,
        "partial_rotary_factor": size / config.head_size,
        "sliding_window": config.sliding_window,
    }


def config_from_gguf(file: GGUFFile) -> Phi3Config:
    if {"rope_factors_long.weight", "rope_factors_short.weight"} & file.tensors.keys():
        raise LoadError(
            f"{file.path} has rope_factors_long.weight, the factors of LongRoPE, which is not supported; expected a "
            "model of the original context, such as Phi-3-mini-4k"
        )
    data = Metadata(file, "phi3")
    shape = data.shape()
    data.check_head_size(shape["head_size"], ("attention.value_length",))
    if data.rope_factors(shape["head_size"]) is not None:
        raise LoadError(f"{file.path} scales the frequencies of a phi3 model; expected no rope scaling")
    turned = data.get("rope.dimension_count", shape["head_size"])
    return Phi3Config(
        **shape,
        norm_eps=data.norm_eps(),
        rope_theta=data.rope_theta(),
        tied_head=data.tied_head(),
        rotary_size=None if turned == shape["head_size"] else turned,
        sliding_window=data.window(),
    )


def tensors_from_gguf(file: GGUFFile, config: Phi3Config) -> Tensors:
    return renamed_tensors(file, spec(config), layer=_GGUF_LAYER)


PHI3 = Family(
    config=Phi3Config,
    build=build,
    config_from_hf=config_from_hf,
    config_to_hf=config_to_hf,
    config_from_gguf=config_from_gguf,
    tensors_from_gguf=tensors_from_gguf,
    spec=spec,
)

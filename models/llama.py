"""The Llama family: Llama 1 to 3, SmolLM, TinyLlama and their like."""

import dataclasses
from typing import Any

from . import hf_config
from .config import RotaryConfig, check_factors, check_window
from .decoder import Decoder, Kind
from .errors import LoadError
from .family import Build, Family
from .gated import gated_decoder, gated_spec
from .gguf_file import GGUFFile
from .gguf_weights import AS_IT_IS, Mend, Metadata, half_split
from .gguf_weights import tensors_from_gguf as renamed_tensors
from .leaves import Spec
from .rope import Rope
from .weights import Tensors


@dataclasses.dataclass(frozen=True)
class LlamaConfig(RotaryConfig):
    """The shape of a model of the family, which Mistral's is but for its window."""

    rope_factors: tuple[float, ...] | None = None
    """What each of the H / 2 rotary frequencies is divided by; `rope.llama3_factors` gives those of Llama 3."""
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None
    """A token sees itself and the tokens before it, this many in all; None for all of them."""

    def __post_init__(self):
        super().__post_init__()
        check_factors(self.rope_factors, self.head_size)
        check_window(self.sliding_window)


def build(config: LlamaConfig, build: Build) -> Decoder:
    kind = Kind(config.sliding_window, Rope(config.head_size, config.rope_theta, config.rope_factors))
    return gated_decoder(
        config,
        build,
        [kind] * config.num_layers,
        qkv_bias=config.attention_bias,
        out_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
    )


def spec(config: LlamaConfig) -> Spec:
    return gated_spec(config, qkv_bias=config.attention_bias, out_bias=config.attention_bias, mlp_bias=config.mlp_bias)


def config_from_hf(raw: hf_config.Raw) -> LlamaConfig:
    hf_config.refuse_quantised(raw)
    hf_config.check_activation(raw, "hidden_act", "silu", ("silu", "swish"))
    shape = hf_config.rotary_shape(raw)
    turning = hf_config.whole_head(raw, shape["head_size"])
    return LlamaConfig(
        **shape,
        rope_theta=turning.theta,
        rope_factors=turning.factors,
        attention_bias=hf_config.boolean(raw, "attention_bias", False),
        mlp_bias=hf_config.boolean(raw, "mlp_bias", False),
    )


def config_to_hf(config: LlamaConfig) -> dict[str, Any]:
    """With a window it is a Mistral model, whose config.json knows no biases."""
    shape = hf_config.rotary_to_hf(config) | {
        "hidden_act": "silu",
        **hf_config.rope_to_hf(config.head_size, config.rope_theta, config.rope_factors),
    }
    if config.sliding_window is None:
        biases = {"attention_bias": config.attention_bias, "mlp_bias": config.mlp_bias}
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **shape, **biases}
    if config.attention_bias or config.mlp_bias:
        raise ValueError(
            "the model has a sliding window and biases; expected at most one of them, for neither Llama's nor "
            "Mistral's config.json can say both"
        )
    window = {"sliding_window": config.sliding_window}
    return {"architectures": ["MistralForCausalLM"], "model_type": "mistral", **shape, **window}


def config_from_gguf(file: GGUFFile) -> LlamaConfig:
    data = Metadata(file, "llama")
    shape = data.shape()
    data.check_head_size(shape["head_size"], ("attention.value_length", "rope.dimension_count"))
    window = data.window()
    if window is not None and not all(data.windowed(shape["num_layers"]) or ()):
        raise LoadError(
            f"{file.path} has a sliding window in some layers only, which is not supported for llama; expected one in "
            "all layers or in none"
        )
    return LlamaConfig(
        **shape,
        norm_eps=data.norm_eps(),
        rope_theta=data.rope_theta(),
        rope_factors=data.rope_factors(shape["head_size"]),
        tied_head=data.tied_head(),
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        sliding_window=window,
    )


def tensors_from_gguf(file: GGUFFile, config: LlamaConfig) -> Tensors:
    turned = half_split(config.head_size)

    def mend(name: str) -> Mend:
        return turned if ".q_proj." in name or ".k_proj." in name else AS_IT_IS

    return renamed_tensors(file, spec(config), mend=mend)


LLAMA = Family(
    config=LlamaConfig,
    build=build,
    config_from_hf=config_from_hf,
    config_to_hf=config_to_hf,
    config_from_gguf=config_from_gguf,
    tensors_from_gguf=tensors_from_gguf,
    spec=spec,
)

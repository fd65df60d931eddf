"""Qwen3: each head's query and key behind a norm of its own, and heads of a size of their own."""

import dataclasses
from typing import Any

from . import hf_config, qwen2
from .decoder import Decoder
from .family import Build, Family
from .gated import gated_decoder, gated_spec
from .gguf_file import GGUFFile
from .gguf_weights import tensors_from_gguf as renamed_tensors
from .leaves import Spec
from .weights import Tensors


@dataclasses.dataclass(frozen=True)
class Qwen3Config(qwen2.Qwen2Config):
    """The shape of a model of the family: Qwen2's fields, with a bias where this says so."""

    attention_bias: bool = False


def build(config: Qwen3Config, build: Build) -> Decoder:
    bias = config.attention_bias
    return gated_decoder(config, build, qwen2.kinds(config), qkv_bias=bias, out_bias=bias, norm_heads=True)


def spec(config: Qwen3Config) -> Spec:
    return gated_spec(config, qkv_bias=config.attention_bias, out_bias=config.attention_bias, norm_heads=True)


def config_from_hf(raw: hf_config.Raw) -> Qwen3Config:
    # Its heads are 128 wide where nothing is said, whatever the width of the model.
    fields = qwen2.fields_from_hf({**raw, "head_dim": raw.get("head_dim") or 128})
    return Qwen3Config(**fields, attention_bias=hf_config.boolean(raw, "attention_bias", False))


def config_to_hf(config: Qwen3Config) -> dict[str, Any]:
    names = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    return {**names, **qwen2.fields_to_hf(config), "attention_bias": config.attention_bias}


def config_from_gguf(file: GGUFFile) -> Qwen3Config:
    bias = "blk.0.attn_q.bias" in file.tensors
    return Qwen3Config(**qwen2.fields_from_gguf(file, "qwen3"), attention_bias=bias)


def tensors_from_gguf(file: GGUFFile, config: Qwen3Config) -> Tensors:
    return renamed_tensors(file, spec(config))


QWEN3 = Family(
    config=Qwen3Config,
    build=build,
    config_from_hf=config_from_hf,
    config_to_hf=config_to_hf,
    config_from_gguf=config_from_gguf,
    tensors_from_gguf=tensors_from_gguf,
    spec=spec,
)

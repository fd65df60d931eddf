"""Qwen2 and Qwen2.5: Llama with biases on queries, keys and values."""

import dataclasses
from typing import Any

from . import hf_config
from .config import RotaryConfig, check_factors, check_windowed
from .decoder import Decoder, Kind
from .errors import LoadError
from .family import Build, Family
from .gated import gated_decoder, gated_spec
from .gguf_file import GGUFFile
from .gguf_weights import Metadata
from .gguf_weights import tensors_from_gguf as renamed_tensors
from .leaves import Spec
from .rope import Rope
from .weights import Tensors


@dataclasses.dataclass(frozen=True)
class Qwen2Config(RotaryConfig):
    """The shape of a model of the family."""

    norm_eps: float = 1e-6
    rope_theta: float = 1e6
    rope_factors: tuple[float, ...] | None = None
    """What each of the H / 2 rotary frequencies is divided by."""
    sliding_window: int | None = None
    """A token sees itself and the tokens before it, this many in all, in the layers that ``windowed`` says."""
    windowed: tuple[bool, ...] = ()
    """For each layer; empty without a window."""

    def __post_init__(self):
        super().__post_init__()
        check_factors(self.rope_factors, self.head_size)
        check_windowed(self.windowed, self.sliding_window, self.num_layers)


def build(config: Qwen2Config, build: Build) -> Decoder:
    return gated_decoder(config, build, kinds(config), qkv_bias=True)


def kinds(config: Qwen2Config) -> list[Kind]:
    """Of each layer; Qwen3 has the same."""
    rope = Rope(config.head_size, config.rope_theta, config.rope_factors)
    windowed = config.windowed or (False,) * config.num_layers
    return [Kind(config.sliding_window if has else None, rope) for has in windowed]


def spec(config: Qwen2Config) -> Spec:
    return gated_spec(config, qkv_bias=True)


def fields_from_hf(raw: hf_config.Raw) -> dict[str, Any]:
    """What Qwen2 and Qwen3 have in common."""
    # What transformers takes where nothing is said.
    raw = {"num_key_value_heads": 32, "sliding_window": 4096, **raw}
    hf_config.refuse_quantised(raw)
    hf_config.check_activation(raw, "hidden_act", "silu", ("silu", "swish"))
    shape = hf_config.rotary_shape(raw)
    turning = hf_config.whole_head(raw, shape["head_size"])
    window, windowed = hf_config.windowed_layers(raw, shape["num_layers"])
    return {
        **shape,
        "rope_theta": turning.theta,
        "rope_factors": turning.factors,
        "sliding_window": window,
        "windowed": windowed,
    }


def fields_to_hf(config: Qwen2Config) -> dict[str, Any]:
    """The same as config.json has it."""
    return hf_config.rotary_to_hf(config) | {
        "hidden_act": "silu",
        **hf_config.rope_to_hf(config.head_size, config.rope_theta, config.rope_factors),
        "use_sliding_window": config.sliding_window is not None,
        "sliding_window": config.sliding_window,
        "layer_types": hf_config.windowed_to_hf(config.windowed, config.num_layers),
    }


def config_to_hf(config: Qwen2Config) -> dict[str, Any]:
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **fields_to_hf(config)}


def fields_from_gguf(file: GGUFFile, architecture: str) -> dict[str, Any]:
    """What Qwen2 and Qwen3 have in common. Few files mention the window."""
    data = Metadata(file, architecture)
    shape = data.shape()
    window, windowed = data.window(), data.windowed(shape["num_layers"])
    if window is not None and windowed is None:
        if window < shape["max_positions"]:
            raise LoadError(
                f"{file.path} has a sliding window of {window} and no {architecture}.attention.sliding_window_pattern; "
                "expected it to say which layers have the window, so load the Hugging Face directory that the file was "
                "made from"
            )
        window = None  # wider than any text
    data.check_head_size(shape["head_size"], ("attention.value_length", "rope.dimension_count"))
    return {
        **shape,
        "norm_eps": data.norm_eps(),
        "rope_theta": data.rope_theta(),
        "rope_factors": data.rope_factors(shape["head_size"]),
        "tied_head": data.tied_head(),
        "sliding_window": window,
        "windowed": windowed if window is not None and windowed is not None else (),
    }


def tensors_from_gguf(file: GGUFFile, config: Qwen2Config) -> Tensors:
    return renamed_tensors(file, spec(config))


QWEN2 = Family(
    config=Qwen2Config,
    build=build,
    config_from_hf=lambda raw: Qwen2Config(**fields_from_hf(raw)),
    config_to_hf=config_to_hf,
    config_from_gguf=lambda file: Qwen2Config(**fields_from_gguf(file, "qwen2")),
    tensors_from_gguf=tensors_from_gguf,
    spec=spec,
)

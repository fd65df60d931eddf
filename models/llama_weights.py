"""Where the Llama family's parameters stand in weight files, and how its configuration is written there."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import PyTree

from . import rope
from .errors import LoadError
from .gguf_file import GGUFFile
from .llama import LlamaConfig
from .weights import Tensors, assemble, check_tensors

_ROPE_FACTORS = "rope_freqs.weight"

_GGUF_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def config_from_hf(raw: Mapping[str, Any]) -> LlamaConfig:
    """From a config.json, of transformers 4 (``rope_theta``, ``rope_scaling``) or 5 (``rope_parameters``)."""

    def need(key: str) -> int:
        value = raw.get(key)
        if value is None:
            raise LoadError(f"config.json has no {key}, which a {raw.get('model_type')} model needs; add it")
        if not isinstance(value, int) or value < 1:
            raise LoadError(f"{key} is {value!r} in config.json; expected a positive integer")
        return value

    if raw.get("quantization_config"):
        raise LoadError(
            f"the weights are quantised with {raw['quantization_config'].get('quant_method')!r}, which is not "
            "supported; expected F32, F16 or BF16 safetensors, or a GGUF file"
        )
    activation = raw.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise LoadError(f"config.json asks for the activation {activation!r}; expected 'silu'")
    heads = need("num_attention_heads")
    head_size = raw.get("head_dim") or need("hidden_size") // heads
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta") or 10000.0)
    return LlamaConfig(
        vocab_size=need("vocab_size"),
        width=need("hidden_size"),
        mlp_width=need("intermediate_size"),
        num_layers=need("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_size=head_size,
        max_positions=need("max_position_embeddings"),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_factors=_rope_factors(scaling, head_size, theta),
        tied_head=bool(raw.get("tie_word_embeddings", False)),
        attention_bias=bool(raw.get("attention_bias", False)),
        mlp_bias=bool(raw.get("mlp_bias", False)),
        sliding_window=raw.get("sliding_window"),
    )


def _rope_factors(scaling: Mapping[str, Any], head_size: int, theta: float) -> tuple[float, ...] | None:
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if scaling.get("partial_rotary_factor", 1) != 1:
        raise LoadError(
            f"config.json rotates a part {scaling['partial_rotary_factor']} of each head; expected the whole head"
        )
    if kind == "default":
        return None
    if kind != "llama3":
        raise LoadError(f"config.json has the rope type {kind!r}, which is not supported; expected default, llama3")
    keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    missing = [key for key in keys if key not in scaling]
    if missing:
        raise LoadError(f"config.json has no {', '.join(missing)} for its rope type llama3; add them")
    factor, low, high, original = (scaling[key] for key in keys)
    return rope.llama3_factors(
        head_size,
        theta,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=original,
    )


def config_from_gguf(file: GGUFFile) -> LlamaConfig:
    def get(key: str, *default: Any) -> Any:
        return file.get(f"llama.{key}", *default)

    if get("expert_count", 0):
        raise LoadError(f"{file.path} is a mixture of {get('expert_count')} experts, which is not supported")
    width, heads = get("embedding_length"), get("attention.head_count")
    kv_heads = get("attention.head_count_kv", heads)
    if not isinstance(heads, int) or not isinstance(kv_heads, int):
        raise LoadError(f"{file.path} has a number of heads for each layer, which is not supported; expected one")
    head_size = get("attention.key_length", width // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if get(key, head_size) != head_size:
            raise LoadError(f"llama.{key} of {file.path} is {get(key)}; expected the head size, {head_size}")
    if get("rope.scaling.type", "none") != "none":
        raise LoadError(
            f"{file.path} has the rope scaling {get('rope.scaling.type')!r}, which is not supported; expected none, or "
            f"the factors of Llama 3 in {_ROPE_FACTORS}"
        )
    factors = file.read(_ROPE_FACTORS).astype(float).tolist() if _ROPE_FACTORS in file.tensors else None
    if "token_embd.weight" not in file.tensors:
        raise LoadError(f"{file.path} has no tensor token_embd.weight; expected a whole language model")
    return LlamaConfig(
        vocab_size=file.shape("token_embd.weight")[0],
        width=width,
        mlp_width=get("feed_forward_length"),
        num_layers=get("block_count"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        max_positions=get("context_length"),
        norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_theta=get("rope.freq_base", 10000.0),
        rope_factors=None if factors is None else tuple(factors),
        tied_head="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
    )


def tensors_from_gguf(file: GGUFFile, config: LlamaConfig) -> Tensors:
    to_gguf = {name: _gguf_name(name) for name in expected_shapes(config)}
    known = set(to_gguf.values()) | {_ROPE_FACTORS}
    shapes = {name: file.shape(there) for name, there in to_gguf.items() if there in file.tensors}
    shapes |= {name: file.shape(name) for name in file.tensors if name not in known}

    def read(name: str) -> np.ndarray:
        array = file.read(to_gguf[name])
        if ".q_proj." in name:
            return _half_split(array, config.num_heads)
        if ".k_proj." in name:
            return _half_split(array, config.num_kv_heads)
        return array

    return Tensors(str(file.path), shapes, read)


def _gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _GGUF_TOP:
        return f"{_GGUF_TOP[stem]}.{kind}"
    _, _, index, part = stem.split(".", 3)
    return f"blk.{index}.{_GGUF_LAYER[part]}.{kind}"


def _half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp turns neighbouring rows as a pair; here, as in Hugging Face's files, row i pairs with i + H / 2."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def expected_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model under Hugging Face's names."""
    D, F, V = config.width, config.mlp_width, config.vocab_size
    N, G, H = config.num_heads, config.num_kv_heads, config.head_size
    attention = {"q_proj": (N * H, D), "k_proj": (G * H, D), "v_proj": (G * H, D), "o_proj": (D, N * H)}
    mlp = {"gate_proj": (F, D), "up_proj": (F, D), "down_proj": (D, F)}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    if not config.tied_head:
        shapes["lm_head.weight"] = (V, D)
    for i in range(config.num_layers):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = (D,)
        for block, parts, bias in (("self_attn", attention, config.attention_bias), ("mlp", mlp, config.mlp_bias)):
            for part, shape in parts.items():
                shapes[f"{layer}{block}.{part}.weight"] = shape
                if bias:
                    shapes[f"{layer}{block}.{part}.bias"] = shape[:1]
    return shapes


def params(config: LlamaConfig, tensors: Tensors, stacked: bool, dtype: jnp.dtype) -> PyTree:
    """The parameters of `llama.Llama`, after a check of all names and shapes."""
    # Old checkpoints store RoPE's frequencies, and some a second copy of a tied head.
    ignored = [name for name in tensors.shapes if name.endswith("rotary_emb.inv_freq")]
    check_tensors(tensors, expected_shapes(config), [*ignored, *(["lm_head.weight"] if config.tied_head else [])])
    read = tensors.read
    top = {
        "embedding": {"weight": read("model.embed_tokens.weight")},
        "norm": {"weight": read("model.norm.weight")},
    }
    if not config.tied_head:
        top["head"] = {"weight": read("lm_head.weight")}
    return assemble(top, lambda i: _layer(config, tensors, i), config.num_layers, stacked=stacked, dtype=dtype)


def _layer(config: LlamaConfig, tensors: Tensors, index: int) -> PyTree:
    G, H = config.num_kv_heads, config.head_size

    def read(part: str, kind: str = "weight") -> np.ndarray:
        return tensors.read(f"model.layers.{index}.{part}.{kind}")

    def qkv(kind: str) -> np.ndarray:
        q, k, v = (read(f"self_attn.{part}_proj", kind) for part in "qkv")
        return np.concatenate([array.reshape(G, -1, H, *array.shape[1:]) for array in (q, k, v)], axis=1)

    def gate_up(kind: str) -> np.ndarray:
        return np.stack([read(f"mlp.{part}_proj", kind) for part in ("gate", "up")])

    def both(kinds: tuple[str, ...], of) -> dict[str, np.ndarray]:
        return {kind: of(kind) for kind in kinds}

    attention = ("weight", "bias") if config.attention_bias else ("weight",)
    mlp = ("weight", "bias") if config.mlp_bias else ("weight",)
    return {
        "attention_norm": {"weight": read("input_layernorm")},
        "qkv": both(attention, qkv),
        "out": both(attention, lambda kind: read("self_attn.o_proj", kind)),
        "mlp_norm": {"weight": read("post_attention_layernorm")},
        "gate_up": both(mlp, gate_up),
        "down": both(mlp, lambda kind: read("mlp.down_proj", kind)),
    }

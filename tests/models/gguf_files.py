"""Writes small GGUF files the way llama.cpp's converter does, from models of transformers."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from transformers import PreTrainedModel

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

# K types are made from random bytes, but for the float16 scales of each block: their byte offsets and their size.
SCALES = {
    "Q2_K": ((80, 82), 1e-2),
    "Q3_K": ((108,), 1e-3),
    "Q4_K": ((0, 2), 2e-4),
    "Q5_K": ((0, 2), 1e-4),
    "Q6_K": ((208,), 5e-5),
}

CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{NAMES[stem]}.{kind}"
    _, _, index, part = stem.split(".", 3)
    return f"blk.{index}.{NAMES[part]}.{kind}"


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp wants the two rows that turn together side by side."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def quantise(array: np.ndarray, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Stored bytes and the values they stand for; norms and biases stay in float32, as llama.cpp has them."""
    if array.ndim == 1:
        return array, array
    if kind in ("F32", "F16"):
        stored = array.astype({"F32": np.float32, "F16": np.float16}[kind])
        return stored, stored.astype(np.float32)
    quant = GGMLQuantizationType[kind]
    if kind in SCALES:
        block, size = gguf.GGML_QUANT_SIZES[quant]
        rng = np.random.default_rng(seed)
        blocks = rng.integers(0, 256, (array.shape[0], array.shape[1] // block, size), dtype=np.uint8)
        offsets, size = SCALES[kind]
        for at in offsets:
            scale = rng.uniform(0.5 * size, 1.5 * size, blocks.shape[:2]).astype(np.float16)
            blocks[:, :, at : at + 2] = scale[:, :, None].view(np.uint8)
        stored = blocks.reshape(array.shape[0], -1)
    else:
        stored = gguf.quantize(array, quant)
    return stored, gguf.dequantize(stored, quant)


def write_metadata(path: Path, metadata: dict[str, Any], architecture: str = "llama") -> None:
    """Write a file without tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    _add(writer, metadata)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, metadata: dict[str, Any]) -> None:
    for key, value in metadata.items():
        add = {
            str: writer.add_string,
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            list: writer.add_array,
        }
        add[type(value)](key, value)


def write_gguf(
    path: Path,
    network: PreTrainedModel,
    kind: str = "F32",
    *,
    architecture: str = "llama",
    metadata: dict[str, Any] | None = None,
    drop: tuple[str, ...] = (),
    tensors: dict[str, np.ndarray] | None = None,
    endianess: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE,
) -> None:
    """Write ``network``, and load the values that the file stands for back into it.

    ``metadata`` and ``tensors`` come on top; tensors named in ``drop`` are left out.
    """
    config = network.config
    writer = gguf.GGUFWriter(path, architecture, endianess=endianess)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    _add(writer, metadata or {})
    state = network.state_dict()
    if config.tie_word_embeddings:
        state.pop("lm_head.weight")
    values = {}
    for seed, (name, value) in enumerate(state.items()):
        array = value.numpy()
        stored, meant = quantise(array, kind, seed)
        values[name] = torch.from_numpy(np.array(meant))
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:
                stored = interleave(stored, heads)
        raw = None if stored.dtype != np.uint8 else GGMLQuantizationType[kind]
        if gguf_name(name) not in drop:
            writer.add_tensor(gguf_name(name), stored, raw_dtype=raw)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    network.load_state_dict(values, strict=not config.tie_word_embeddings)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_family(path: Path, network, architecture: str, metadata: dict[str, Any] | None = None) -> None:
    """Names are looked up in the gguf package's own table; ``metadata`` come on top."""
    config = network.config
    writer = gguf.GGUFWriter(path, architecture)
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    groups = getattr(config, "num_key_value_heads", heads)
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(heads)
    if architecture == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        rope = config.rope_parameters
        near = rope.get("sliding_attention")
        rope = rope.get("full_attention", rope)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(groups)
        writer.add_key_length(size)
        writer.add_value_length(size)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(rope["rope_theta"])
        writer.add_rope_dimension_count(int(size * rope.get("partial_rotary_factor", 1)))
        if rope["rope_type"] == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        if getattr(config, "sliding_window", None):
            writer.add_sliding_window(config.sliding_window)
            if getattr(config, "layer_types", None):
                writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
        if near is not None:
            writer.add_float32("gemma3.rope.freq_base_swa", near["rope_theta"])
    _add(writer, metadata or {})
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, layers)
    for name, value in network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = value.numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            array = interleave(array, heads if "q_proj" in name else groups)
        if architecture == "gpt2" and name.endswith(CONV1D):
            array = array.T
        if architecture == "gemma3" and name.endswith("norm.weight"):
            array = array + 1
        there = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert there is not None, name
        writer.add_tensor(there, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

"""Small random models of every family, with each of its special cases on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers as hf
from programs import quick

COMMON = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "pad_token_id": 0,
}


class Case(NamedTuple):
    """A model of transformers."""

    config: type[hf.PretrainedConfig]
    model: type[hf.PreTrainedModel]
    settings: dict[str, Any]


def of(family: str, **changes: Any) -> Case:
    config, model = {
        "llama": (hf.LlamaConfig, hf.LlamaForCausalLM),
        "mistral": (hf.MistralConfig, hf.MistralForCausalLM),
        "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM),
        "qwen3": (hf.Qwen3Config, hf.Qwen3ForCausalLM),
        "gemma3": (hf.Gemma3TextConfig, hf.Gemma3ForCausalLM),
        "phi3": (hf.Phi3Config, hf.Phi3ForCausalLM),
        "gpt2": (hf.GPT2Config, hf.GPT2LMHeadModel),
    }[family]
    return Case(config, model, COMMON | changes)


HALF_TURNS = {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}
GEMMA = {
    "num_hidden_layers": 6,
    "head_dim": 12,
    "tie_word_embeddings": True,
    "sliding_window": 7,
    "query_pre_attn_scalar": 20,
    "sliding_window_pattern": 3,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 900.0, "factor": 4.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}
GPT = {
    "vocab_size": 97,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "eos_token_id": 1,
    "bos_token_id": 1,
}

CASES = {
    "qwen2": of("qwen2", tie_word_embeddings=True),
    "qwen2 with windows": of("qwen2", use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "qwen2 with layer types": of(
        "qwen2",
        use_sliding_window=True,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "qwen3": of("qwen3", head_dim=12),
    "qwen3 with bias and windows": of(
        "qwen3", head_dim=8, attention_bias=True, use_sliding_window=True, sliding_window=7, max_window_layers=2
    ),
    "gemma3": of("gemma3", **GEMMA),
    "gemma3 with one layer in six global": of(
        "gemma3", **(GEMMA | {"sliding_window_pattern": 6, "rope_parameters": None, "attention_bias": True})
    ),
    "gemma3 all global": of("gemma3", **(GEMMA | {"layer_types": ["full_attention"] * 6})),
    "mistral": of("mistral", sliding_window=7, head_dim=12),
    "llama with linear rope": of("llama", rope_parameters=LINEAR),
    "phi3": of("phi3"),
    "phi3 with a part that turns and a window": of(
        "phi3",
        head_dim=12,
        sliding_window=7,
        num_key_value_heads=4,
        rope_parameters=HALF_TURNS,
    ),
    "gpt2": Case(hf.GPT2Config, hf.GPT2LMHeadModel, GPT),
    "gpt2 with another inner width and an own head": Case(
        hf.GPT2Config, hf.GPT2LMHeadModel, GPT | {"n_inner": 40, "tie_word_embeddings": False}
    ),
}
"""By what is special."""

ONE_A_FAMILY = ["qwen2 with windows", "qwen3", "gemma3", "mistral", "phi3 with a part that turns and a window", "gpt2"]


def make(case: Case, seed: int = 0) -> Any:
    """Every parameter differs from what a fresh one has, biases and norms too."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = case.settings | {"attn_implementation": "eager"}
    network = case.model(case.config(**settings)).eval()
    with torch.no_grad():
        for name, value in network.named_parameters():
            noise = torch.randn_like(value)
            is_norm = ("norm" in name or ".ln_" in name) and name.endswith("weight")
            base = 1.0 if is_norm and "Gemma3" not in case.model.__name__ else 0.0
            value.copy_(base + 0.2 * noise if is_norm else 0.15 * noise)
    return network


def logits(loaded, tokens):
    start = jnp.zeros(tokens.shape[0], jnp.int32)
    cache = loaded.model.init_cache(tokens.shape[0], 48)
    return np.asarray(quick(loaded.model.apply)(loaded.params, jnp.asarray(tokens, jnp.int32), cache, start)[0])


def bits_equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))

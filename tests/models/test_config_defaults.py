"""What a config.json leaves out has the value that transformers gives it, or is asked for."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import transformers as hf

from specdec_jax.models import LoadError
from specdec_jax.models.registry import HF_MODEL_TYPES

# No value is the default of any family, and heads are whole multiples of every default number of key heads.
SIZES = {
    "vocab_size": 97,
    "hidden_size": 1024,
    "intermediate_size": 48,
    "num_hidden_layers": 30,
    "num_attention_heads": 64,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 3e-3,
}
WINDOW = {"sliding_window": 7}
SOME = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 3}
THETA = {"rope_type": "default", "rope_theta": 77.0}
BOTH = {"full_attention": {"rope_type": "linear", "rope_theta": 9.0, "factor": 3.0}, "sliding_attention": THETA}
CASES: dict[str, tuple[type[hf.PretrainedConfig], dict[str, Any]]] = {
    "llama": (hf.LlamaConfig, {"attention_bias": True, "mlp_bias": True, "head_dim": 4}),
    "mistral": (hf.MistralConfig, WINDOW | {"head_dim": 4}),
    "qwen2": (hf.Qwen2Config, SOME),
    "qwen3": (hf.Qwen3Config, SOME | {"attention_bias": True, "head_dim": 4}),
    "gemma3": (hf.Gemma3TextConfig, WINDOW | {"head_dim": 4, "query_pre_attn_scalar": 5, "rope_parameters": BOTH}),
    "phi3": (hf.Phi3Config, WINDOW | {"rope_parameters": THETA | {"partial_rotary_factor": 0.5}}),
}
ROTARY = {
    name: (kind, SIZES | {"tie_word_embeddings": name != "gemma3", "rope_parameters": THETA} | changes)
    for name, (kind, changes) in CASES.items()
}
GPT = {"vocab_size": 97, "n_embd": 960, "n_layer": 3, "n_head": 4, "n_inner": 40, "n_positions": 64}
ALL: dict[str, tuple[type[hf.PretrainedConfig], dict[str, Any]]] = ROTARY | {
    "gpt2": (hf.GPT2Config, GPT | {"layer_norm_epsilon": 3e-3, "tie_word_embeddings": False})
}


def without(settings: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The settings without each of their keys, or those inside them, by the way to the key."""
    for key, value in settings.items():
        rest = {name: other for name, other in settings.items() if name != key}
        yield (*path, key), rest
        if isinstance(value, dict):
            for inside, less in without(value, (*path, key)):
                yield inside, rest | {key: less}


@pytest.mark.parametrize("name", ALL)
def test_defaults_are_those_of_transformers(name):
    kind, settings = ALL[name]
    read = HF_MODEL_TYPES[name].config_from_hf
    full = json.loads(kind(**settings).to_json_string(use_diff=False))
    full.pop("layer_types", None)  # where they are said, other keys do not count
    asked_for: dict[str, str] = {}
    for path, partial in without(full):
        try:
            got = read(partial)
        except LoadError as error:
            asked_for[path[-1]] = str(error)
            continue
        theirs = kind.from_dict(json.loads(json.dumps(partial)))  # which it alters
        assert got == read(json.loads(theirs.to_json_string(use_diff=False))), path
    needed = {"vocab_size"} if name == "gpt2" else {*SIZES} - {"num_key_value_heads", "rms_norm_eps"}
    assert asked_for.keys() <= needed | {"factor"}
    assert all(f"config.json has no {key}" in message for key, message in asked_for.items())

"""Directories of every family: tensors under several names, and configurations that say what is not supported."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from families import CASES, LINEAR, logits, make
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

from specdec_jax import models
from specdec_jax.models import LoadError
from specdec_jax.models.registry import family_of_config


def close(got, want):
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)


def test_the_text_of_a_model_that_also_sees(tmp_path, oracle_logits, random_tokens):
    text = make(CASES["gemma3"])
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    settings = text.config.to_dict()
    whole = Gemma3ForConditionalGeneration(
        Gemma3Config(text_config=settings, vision_config=vision, mm_tokens_per_image=4)
    )
    whole.model.language_model.load_state_dict(text.model.state_dict())
    whole.save_pretrained(tmp_path)
    want = oracle_logits(text, random_tokens)
    close(logits(models.load(tmp_path, dtype=jnp.float32), random_tokens), want)
    # The other way to name them.
    tensors = load_file(tmp_path / "model.safetensors")
    prefixes = {"language_model.model.": "model.language_model.", "model.language_model.": "language_model.model."}
    old = next(prefix for prefix in prefixes if any(name.startswith(prefix) for name in tensors))
    tensors = {name.replace(old, prefixes[old], 1) if name.startswith(old) else name: t for name, t in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    close(logits(models.load(tmp_path, dtype=jnp.float32), random_tokens), want)
    tensors["vision_towers.surprise"] = torch.zeros(1)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(LoadError, match=r"1 unexpected: vision_towers\.surprise"):
        models.load(tmp_path)


def test_gemma_settings_of_transformers_4(tmp_path):
    """Older files give the two bases apart, and a number in place of the layers' types."""
    make(CASES["gemma3"]).save_pretrained(tmp_path)
    want = models.load(tmp_path).config
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    ropes = settings.pop("rope_parameters")
    settings["rope_theta"] = ropes["full_attention"].pop("rope_theta")
    settings["rope_scaling"] = ropes["full_attention"]
    settings["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"]
    del settings["layer_types"]
    path.write_text(json.dumps(settings))
    assert settings["sliding_window_pattern"] == 3
    assert models.load(tmp_path).config == want


def test_the_first_gpt2_has_no_prefix_and_stores_its_masks(tmp_path, oracle_logits, random_tokens):
    network = make(CASES["gpt2"])
    network.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
    save_file(tensors, tmp_path / "model.safetensors")
    close(logits(models.load(tmp_path, dtype=jnp.float32), random_tokens), oracle_logits(network, random_tokens))


@pytest.mark.parametrize("name", ["qwen2", "gemma3", "gpt2"])
def test_a_head_of_its_own_though_tied_by_the_configuration(name, tmp_path, oracle_logits, random_tokens):
    """transformers takes the file's head, unless it is the embedding again."""
    make(CASES[name]).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    embedding = tensors["transformer.wte.weight" if name == "gpt2" else "model.embed_tokens.weight"]
    tied = models.load(tmp_path).config
    assert tied.tied_head
    save_file(tensors | {"lm_head.weight": embedding.clone()}, tmp_path / "model.safetensors")
    assert models.load(tmp_path).config == tied
    save_file(tensors | {"lm_head.weight": 0.15 * torch.randn(97, 32)}, tmp_path / "model.safetensors")
    loaded = models.load(tmp_path, dtype=jnp.float32)
    assert not loaded.config.tied_head
    network = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    close(logits(loaded, random_tokens), oracle_logits(network, random_tokens))
    save_file(tensors | {"lm_head.weight": torch.zeros(96, 32)}, tmp_path / "model.safetensors")
    with pytest.raises(LoadError, match=r"1 of another shape: lm_head.weight is \[96, 32\] instead of \[97, 32\]"):
        models.load(tmp_path)


@pytest.mark.parametrize("name", ["gemma3", "gpt2", "phi3"])
def test_all_wrong_tensors_are_named_at_once(name, tmp_path):
    make(CASES[name]).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    layer = "transformer.h.1." if name == "gpt2" else "model.layers.1."
    part = {"gemma3": "self_attn.q_norm", "gpt2": "attn.c_attn", "phi3": "mlp.gate_up_proj"}[name]
    norm = {"gemma3": "pre_feedforward_layernorm", "gpt2": "ln_2", "phi3": "input_layernorm"}[name]
    tensors[f"{layer}{part}.weight"] = torch.zeros(5)
    del tensors[f"{layer}{norm}.weight"]
    tensors[f"{layer}surprise"] = torch.zeros(1)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(LoadError) as caught:
        models.load(tmp_path)
    for message in (
        f"1 missing: {layer}{norm}.weight",
        f"{layer}{part}.weight is [5] instead",
        f"1 unexpected: {layer}s",
    ):
        assert message in str(caught.value)


LONG = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("phi3", {"rope_parameters": LONG}, "rope type longrope, a kind of LongRoPE, which is not supported; expected"),
        ("phi3", {"rope_parameters": LONG | {"rope_type": "yarn"}}, "rope type yarn, a kind of LongRoPE, which is not"),
        ("phi3", {"rope_parameters": LINEAR}, "scales the frequencies of a phi3 model; expected the rope type default"),
        ("qwen2", {"use_sliding_window": "yes"}, "use_sliding_window in config.json is 'yes'; expected true or false"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0 in config.json, which is not"),
        (
            "gemma3",
            {"layer_types": ["full_attention"]},
            "expected 6 entries, each of sliding_attention, full_attention",
        ),
        ("gemma3", {"sliding_window": None}, "sliding_window is null in config.json, but it has sliding layers"),
        ("gemma3", {"query_pre_attn_scalar": -1}, "query_scalar is -1.0; expected a positive number"),
        ("gemma3", {"hidden_activation": "silu"}, "the activation 'silu'; expected 'gelu_pytorch_tanh'"),
        (
            "gpt2",
            {"scale_attn_by_inverse_layer_idx": True},
            "is True in config.json, which is not supported; expected F",
        ),
        ("gpt2", {"n_head": 5}, "width is 32 and num_heads 5; expected a multiple"),
        ("gpt2", {"activation_function": "relu"}, "the activation 'relu'; expected 'gelu_new'"),
        (
            "qwen2 with windows",
            {"sliding_window": "wide"},
            "sliding_window is 'wide' in config.json; expected a positive",
        ),
        ("qwen2 with windows", {"layer_types": ["chunked"] * 3}, "layer_types is .* expected 3 entries"),
        ("qwen3", {"rms_norm_eps": "small"}, "rms_norm_eps is 'small' in config.json; expected a number"),
        ("mistral", {"sliding_window": -3}, "sliding_window is -3 in config.json; expected a positive integer"),
    ],
)
def test_configs_are_refused(case, changes, message, tmp_path):
    config = CASES[case].config(**CASES[case].settings)
    settings = json.loads(config.to_json_string(use_diff=False)) | {"architectures": None} | changes
    (tmp_path / "config.json").write_text(json.dumps(settings))
    # Sizes are held against the tensors before the configuration is read, so there must be some.
    save_file({f"t{i}": torch.zeros(128, 128) for i in range(99)}, tmp_path / "model.safetensors")
    with pytest.raises(LoadError, match=message):
        models.load(tmp_path)


def test_a_foreign_configuration():
    names = ("vocab_size", "width", "num_layers", "num_kv_heads", "head_size", "max_positions", "tied_head")
    foreign = dataclasses.make_dataclass("Foreign", names)(*[8] * len(names))
    with pytest.raises(TypeError, match="config is a Foreign; expected one of LlamaConfig, Qwen2Config"):
        family_of_config(foreign)

"""Logits agree with transformers, for every variant and from every form of safetensors."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from specdec_jax import models

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}

VARIANTS = {
    "grouped queries": {},
    "one kv head a query head": {"num_key_value_heads": 4},
    "one kv head": {"num_key_value_heads": 1},
    "tied head": {"tie_word_embeddings": True},
    "llama 3 rope": {"rope_parameters": LLAMA3},
    "another rope base": {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    "explicit head size": {"head_dim": 12},
    "attention bias": {"attention_bias": True},
    "mlp bias": {"mlp_bias": True},
    "sliding window": {"family": "mistral", "sliding_window": 7},
    "window of one": {"family": "mistral", "sliding_window": 1},
    "no window": {"family": "mistral", "sliding_window": None},
}


# Each layout gets half of the variants; that both are equal is a test of its own.
CASES = [
    pytest.param(changes, ("unrolled", "stacked")[index % 2], id=name)
    for index, (name, changes) in enumerate(VARIANTS.items())
]


@pytest.mark.parametrize(("changes", "layers"), CASES)
def test_logits(changes, layers, tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    network = oracle(**changes)
    network.save_pretrained(tmp_path)
    loaded = models.load(tmp_path, dtype=jnp.float32, layers=layers)
    got = full_pass(loaded.model, loaded.params, random_tokens)
    want = oracle_logits(network, random_tokens)
    assert np.ptp(want) > 1, "the oracle's logits are too flat to tell anything"
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)


def test_shards(tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    network = oracle()
    network.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    loaded = models.load(tmp_path, dtype=jnp.float32)
    np.testing.assert_allclose(
        full_pass(loaded.model, loaded.params, random_tokens), oracle_logits(network, random_tokens), atol=1e-4
    )


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_narrow_files_are_widened(stored, tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    oracle().to(stored).save_pretrained(tmp_path)
    loaded = models.load(tmp_path, dtype=jnp.float32)
    want = oracle_logits(LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32), random_tokens)
    np.testing.assert_allclose(full_pass(loaded.model, loaded.params, random_tokens), want, atol=1e-4)


def test_bfloat16(tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    network = oracle()
    network.save_pretrained(tmp_path)
    loaded = models.load(tmp_path, dtype=jnp.bfloat16)
    got, want = full_pass(loaded.model, loaded.params, random_tokens), oracle_logits(network, random_tokens)
    assert loaded.model.init_cache(1, 8).k.dtype == jnp.bfloat16
    assert got.dtype == np.float32
    assert np.sqrt(np.mean((got - want) ** 2)) < 0.03 * np.std(want)


def test_settings_of_transformers_4(tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    """Older files keep rope_theta and rope_scaling apart, and the latter may call its kind ``type``."""
    network = oracle(rope_parameters=LLAMA3)
    network.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    scaling = settings.pop("rope_parameters")
    settings["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    settings["rope_scaling"] = scaling
    path.write_text(json.dumps(settings))
    loaded = models.load(tmp_path, dtype=jnp.float32)
    np.testing.assert_allclose(
        full_pass(loaded.model, loaded.params, random_tokens), oracle_logits(network, random_tokens), atol=1e-4
    )

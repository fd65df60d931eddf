"""What `models.save` writes loads in transformers and here, whole or not at all."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from families import CASES, bits_equal, make, of
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from specdec_jax import models
from specdec_jax.models.registry import HF_MODEL_TYPES


@pytest.mark.parametrize("name", CASES)
def test_saved_models_load_in_transformers(name, tmp_path, oracle_logits, random_tokens):
    """From stacked parameters, in several shards; the names and the values are those that transformers would write."""
    network = make(CASES[name])
    network.save_pretrained(tmp_path / "theirs")
    loaded = models.load(tmp_path / "theirs", dtype=jnp.float32, layers="stacked")
    models.save(tmp_path / "ours", loaded.config, loaded.params, shard_bytes=20_000)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 2
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32, attn_implementation="eager")
    assert type(theirs) is type(network)
    np.testing.assert_array_equal(oracle_logits(theirs.eval(), random_tokens), oracle_logits(network, random_tokens))
    again = models.load(tmp_path / "ours", dtype=jnp.float32, layers="stacked")
    assert again.config == loaded.config
    bits_equal(again.params, loaded.params)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", CASES)
def test_transformers_4_is_told_the_same(name):
    """It knows no rope_parameters, and would take its own defaults."""
    case = CASES[name]
    settings = {key: value for key, value in case.settings.items() if key != "attn_implementation"}
    raw: dict[str, Any] = case.config(**settings).to_dict() | {"architectures": None}
    family = HF_MODEL_TYPES[raw["model_type"]]
    config = family.config_from_hf(raw)
    written = family.config_to_hf(config)
    assert ("rope_parameters" in written) == (name[:4] != "gpt2")
    assert family.config_from_hf({key: value for key, value in written.items() if key != "rope_parameters"}) == config


def test_bfloat16_is_saved_as_it_is(tmp_path):
    make(CASES["gpt2"]).save_pretrained(tmp_path / "theirs")
    loaded = models.load(tmp_path / "theirs", dtype=jnp.bfloat16)
    models.save(tmp_path / "ours", loaded.config, loaded.params)
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["dtype"] == "bfloat16"
    assert {tensor.dtype for tensor in load_file(tmp_path / "ours" / "model.safetensors").values()} == {torch.bfloat16}
    bits_equal(models.load(tmp_path / "ours", dtype=jnp.bfloat16).params, loaded.params)


@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (0.5, 2.0), (3.0, 3.2), (1.0, 9.0)])
@pytest.mark.parametrize("original", [24, 8192])
def test_llama3_rope_survives(original, low, high, tmp_path):
    """A configuration holds its factors only; config.json gets back the settings that they come from."""
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
    make(of("llama", rope_parameters=scaling, head_dim=16)).save_pretrained(tmp_path / "theirs")
    loaded = models.load(tmp_path / "theirs")
    models.save(tmp_path / "ours", loaded.config, loaded.params)
    want, got = loaded.config, models.load(tmp_path / "ours").config
    assert isinstance(want, models.LlamaConfig)
    assert isinstance(got, models.LlamaConfig)
    assert got.rope_factors == pytest.approx(want.rope_factors, rel=1e-6)
    assert dataclasses.replace(got, rope_factors=want.rope_factors) == want
    assert (low, high) != (1.0, 4.0) or got == want


def test_an_occupied_directory_is_left_alone(tmp_path):
    (tmp_path / "kept").write_text("mine")
    config = models.LlamaConfig(
        vocab_size=7, width=8, mlp_width=8, num_layers=1, num_heads=2, num_kv_heads=1, head_size=4, max_positions=8
    )
    params = models.init_params(config, jax.random.key(0))
    for write in (models.save, models.save_checkpoint):
        with pytest.raises(FileExistsError, match="exists and is not an empty directory; expected a new one"):
            write(tmp_path, config, params)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_nothing_is_left_of_a_save_that_fails(tmp_path):
    config = models.LlamaConfig(
        vocab_size=7, width=8, mlp_width=8, num_layers=1, num_heads=2, num_kv_heads=1, head_size=4, max_positions=8
    )
    params = models.init_params(config, jax.random.key(0))
    with pytest.raises(KeyError):
        models.save(tmp_path / "model", config, {**params, "norm": {}})
    with pytest.raises(ValueError, match="Unsupported type"):
        models.save_checkpoint(tmp_path / "model", config, {**params, "norm": object()})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sliding_window": 4, "mlp_bias": True}, "a sliding window and biases; expected at most one of them"),
        ({"rope_factors": (3.0, 1.0)}, "neither all equal nor those of Llama 3"),
    ],
)
def test_what_config_json_cannot_say(changes, message, tmp_path):
    sizes = {"vocab_size": 7, "width": 8, "mlp_width": 8, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}
    config = models.LlamaConfig(**sizes, head_size=4, max_positions=8, **changes)
    with pytest.raises(ValueError, match=message):
        models.save(tmp_path / "model", config, models.init_params(config, jax.random.key(0)))
    assert list(tmp_path.iterdir()) == []

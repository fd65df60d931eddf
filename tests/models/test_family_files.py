"""Files of every family: GGUF as llama.cpp's converter lays them out, and what this project writes itself."""

import dataclasses
import json

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from families import CASES, GEMMA, HALF_TURNS, LINEAR, bits_equal, logits, make, of
from gguf_files import write_family
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

from specdec_jax import models
from specdec_jax.models import LoadError
from specdec_jax.models.registry import family_of_config

GGUF_CASES = {
    "llama": of("llama", rope_parameters=LINEAR),
    "mistral": CASES["mistral"],
    "qwen2": of("qwen2", tie_word_embeddings=True),
    "qwen2 with layer types": CASES["qwen2 with layer types"],
    "qwen3": of("qwen3", head_dim=12),
    "qwen3 with bias and windows": CASES["qwen3 with bias and windows"],
    "gemma3": of("gemma3", **(GEMMA | {"query_pre_attn_scalar": 12})),
    "phi3": of("phi3", sliding_window=7, num_key_value_heads=4, rope_parameters=HALF_TURNS),
    "gpt2": CASES["gpt2 with another inner width and an own head"],
}


def close(got, want):
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)


# ---- GGUF ----


@pytest.mark.parametrize("name", GGUF_CASES)
def test_gguf_and_what_is_saved_of_it(name, tmp_path, oracle_logits, random_tokens):
    network = make(GGUF_CASES[name])
    write_family(tmp_path / "model.gguf", network, "llama" if name == "mistral" else name.split()[0])
    loaded = models.load(tmp_path / "model.gguf", dtype=jnp.float32)
    want = oracle_logits(network, random_tokens)
    assert np.ptp(want) > 0.5
    close(logits(loaded, random_tokens), want)
    models.save(tmp_path / "saved", loaded.config, loaded.params)
    again = models.load(tmp_path / "saved", dtype=jnp.float32)
    assert again.config == loaded.config
    bits_equal(again.params, loaded.params)


def windowed_file(path, architecture, metadata):
    """A file whose window is 7 of 64 positions."""
    network = make(of(architecture, sliding_window=7, head_dim=8) if architecture == "mistral" else of(architecture))
    architecture = "llama" if architecture == "mistral" else architecture
    write_family(path, network, architecture, {f"{architecture}.{key}": value for key, value in metadata.items()})


WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


@pytest.mark.parametrize(
    ("metadata", "window", "windowed"),
    [
        ({WINDOW: 7, PATTERN: [True, False, True]}, 7, (True, False, True)),
        ({WINDOW: 7, PATTERN: 2}, 7, (True, False, True)),
        ({WINDOW: 64}, None, ()),
        ({WINDOW: 0}, None, ()),
        ({}, None, ()),
    ],
)
def test_windows_that_a_gguf_file_states(metadata, window, windowed, tmp_path):
    windowed_file(tmp_path / "model.gguf", "qwen2", metadata)
    config = models.load(tmp_path / "model.gguf").config
    assert isinstance(config, models.Qwen2Config)
    assert (config.sliding_window, config.windowed) == (window, windowed)


@pytest.mark.parametrize(
    ("architecture", "metadata", "message"),
    [
        ("qwen2", {WINDOW: 7}, "a sliding window of 7 and no qwen2.attention.sliding_window_pattern; expected it to s"),
        ("qwen2", {WINDOW: 7, PATTERN: [True]}, "windowed has 1 entries for 3 layers"),
        ("qwen2", {WINDOW: 7, PATTERN: 0}, "makes no sense .ZeroDivisionError"),
        ("mistral", {PATTERN: [True, False, True]}, "a sliding window in some layers only, which is not supported for"),
    ],
)
def test_windows_that_make_no_sense(architecture, metadata, message, tmp_path):
    windowed_file(tmp_path / "model.gguf", architecture, metadata)
    with pytest.raises(LoadError, match=message):
        models.load(tmp_path / "model.gguf")


def test_longrope_is_refused_in_gguf(tmp_path):
    write_family(tmp_path / "plain.gguf", make(GGUF_CASES["phi3"]), "phi3")
    reader = gguf.GGUFReader(tmp_path / "plain.gguf")
    writer = gguf.GGUFWriter(tmp_path / "long.gguf", "phi3")
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.add_tensor("rope_factors_long.weight", np.ones(2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        LoadError, match="factors of LongRoPE, which is not supported; expected a model of the original"
    ):
        models.load(tmp_path / "long.gguf")


# ---- what is written ----


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


def test_bfloat16_is_saved_as_it_is(tmp_path):
    make(CASES["gpt2"]).save_pretrained(tmp_path / "theirs")
    loaded = models.load(tmp_path / "theirs", dtype=jnp.bfloat16)
    models.save(tmp_path / "ours", loaded.config, loaded.params)
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["dtype"] == "bfloat16"
    assert {tensor.dtype for tensor in load_file(tmp_path / "ours" / "model.safetensors").values()} == {torch.bfloat16}
    bits_equal(models.load(tmp_path / "ours", dtype=jnp.bfloat16).params, loaded.params)


@pytest.mark.parametrize("original", [24, 8192])
def test_llama3_rope_survives(original, tmp_path):
    """A configuration holds its factors only; config.json gets back the settings that they come from."""
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    make(of("llama", rope_parameters=scaling, head_dim=16)).save_pretrained(tmp_path / "theirs")
    loaded = models.load(tmp_path / "theirs")
    models.save(tmp_path / "ours", loaded.config, loaded.params)
    assert models.load(tmp_path / "ours").config == loaded.config


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


# ---- names of several kinds ----


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

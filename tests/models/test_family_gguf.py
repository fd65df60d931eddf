"""GGUF files of every family, as llama.cpp's converter lays them out."""

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from families import CASES, GEMMA, HALF_TURNS, LINEAR, bits_equal, logits, make, of
from gguf_files import write_family
from marks import at_once

from specdec_jax import models
from specdec_jax.models import LoadError

GGUF_CASES = {
    "llama": of("llama", rope_parameters=LINEAR),
    "mistral": CASES["mistral"],
    "qwen2": of("qwen2", tie_word_embeddings=True),
    "qwen2 with layer types": CASES["qwen2 with layer types"],
    "qwen3": of("qwen3", head_dim=12),
    "qwen3 with bias and windows": CASES["qwen3 with bias and windows"],
    "gemma3": of("gemma3", **(GEMMA | {"query_pre_attn_scalar": 12})),
    # Known by its layers: of the family it alone divides by something else than the head size.
    "gemma3 27b": of(
        "gemma3", **(GEMMA | {"num_hidden_layers": 62, "query_pre_attn_scalar": 8, "sliding_window_pattern": 6})
    ),
    "phi3": of("phi3", sliding_window=7, num_key_value_heads=4, rope_parameters=HALF_TURNS),
    "gpt2": CASES["gpt2 with another inner width and an own head"],
}


@pytest.mark.parametrize("name", at_once(GGUF_CASES, ["llama", "qwen3", "gemma3", "phi3", "gpt2"]))
def test_gguf_and_what_is_saved_of_it(name, tmp_path, oracle_logits, random_tokens):
    network = make(GGUF_CASES[name])
    write_family(tmp_path / "model.gguf", network, "llama" if name == "mistral" else name.split()[0])
    loaded = models.load(tmp_path / "model.gguf", dtype=jnp.float32)
    want = oracle_logits(network, random_tokens)
    assert np.ptp(want) > 0.5
    np.testing.assert_allclose(logits(loaded, random_tokens), want, atol=1e-4, rtol=0)
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

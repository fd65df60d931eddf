"""GGUF files give the logits of the values they stand for, in every type that can be dequantised."""

import re
from pathlib import Path

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf_files import write_gguf
from test_llama import LLAMA3

from specdec_jax import models
from specdec_jax.models.gguf_file import SUPPORTED, GGUFFile

# Blocks of the K types have 256 values.
WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8}


WHOLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
"""Those that most files of the families have."""


def test_the_usual_types_are_supported():
    assert set(SUPPORTED) >= {*WHOLE, "IQ2_S", "IQ3_S", "IQ4_NL", "IQ4_XS"}


def test_the_types_that_the_documentation_lists():
    page = (Path(__file__).parents[2] / "docs" / "models-and-files.md").read_text(encoding="utf-8")
    listed = re.search(r"(?m)^## GGUF types\n(?:(?! {4}).*\n)+((?: {4}.*\n)+)", page)
    assert listed is not None
    assert {*WHOLE} <= {*listed[1].split()} <= {*SUPPORTED}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", SUPPORTED)
def test_tensors_are_what_the_gguf_package_makes_of_them(kind, tmp_path):
    """As a whole and in parts, whatever the bytes: even those that stand for no number."""
    quant = GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[quant]
    stored = np.random.default_rng(0).integers(0, 256, (6, 512 // block * size), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tensor("matrix", stored, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "model.gguf")
    want = gguf.dequantize(stored, quant).astype(np.float32)
    assert file.shape("matrix") == want.shape == (6, 512)
    np.testing.assert_array_equal(file.read("matrix").astype(np.float32), want)
    np.testing.assert_array_equal(file.read("matrix", slice(2, 5)).astype(np.float32), want[2:5])


@pytest.mark.parametrize("kind", WHOLE)
def test_types(kind, tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    network = oracle(**WIDE)
    write_gguf(tmp_path / "model.gguf", network, kind)
    loaded = models.load(tmp_path / "model.gguf", dtype=jnp.float32)
    got, want = full_pass(loaded.model, loaded.params, random_tokens), oracle_logits(network, random_tokens)
    assert np.ptp(want) > 0.1
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)


def test_sound_blocks_are_close_to_what_was_quantised(tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    """The file is read as the model it was made from, not merely as what the same library makes of it."""
    network = oracle(**WIDE)
    before = oracle_logits(network, random_tokens)
    write_gguf(tmp_path / "model.gguf", network, "Q8_0")
    loaded = models.load(tmp_path / "model.gguf", dtype=jnp.float32)
    got = full_pass(loaded.model, loaded.params, random_tokens)
    assert np.sqrt(np.mean((got - before) ** 2)) < 0.1 * np.std(before)


@pytest.mark.parametrize(
    "changes",
    [{"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}, {"head_dim": 12}],
    ids=["tied head", "biases", "explicit head size"],
)
def test_variants(changes, tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    network = oracle(**changes)
    write_gguf(tmp_path / "model.gguf", network)
    loaded = models.load(tmp_path / "model.gguf", dtype=jnp.float32, layers="stacked")
    np.testing.assert_allclose(
        full_pass(loaded.model, loaded.params, random_tokens), oracle_logits(network, random_tokens), atol=1e-4
    )


def test_llama3_rope_factors(tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    """GGUF carries Llama 3's scaling as what each frequency is divided by."""
    network = oracle(rope_parameters=LLAMA3)
    scaled = network.model.rotary_emb.inv_freq.numpy()
    plain = LLAMA3["rope_theta"] ** (-np.arange(0, 8, 2) / 8)
    factors = (plain / scaled).astype(np.float32)
    assert factors.max() == pytest.approx(4)
    write_gguf(tmp_path / "model.gguf", network, tensors={"rope_freqs.weight": factors})
    loaded = models.load(tmp_path / "model.gguf", dtype=jnp.float32)
    np.testing.assert_allclose(
        full_pass(loaded.model, loaded.params, random_tokens), oracle_logits(network, random_tokens), atol=1e-4
    )


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_factor_without_a_kind_is_linear(key, tmp_path, oracle, oracle_logits, full_pass, random_tokens):
    """As llama.cpp takes it, under its present and its former key."""
    network = oracle(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0})
    write_gguf(tmp_path / "model.gguf", network, metadata={f"llama.{key}": 4.0})
    loaded = models.load(tmp_path / "model.gguf", dtype=jnp.float32)
    np.testing.assert_allclose(
        full_pass(loaded.model, loaded.params, random_tokens), oracle_logits(network, random_tokens), atol=1e-4
    )

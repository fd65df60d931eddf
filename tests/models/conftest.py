"""Small random models of transformers, the independent oracle."""

import shutil
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from programs import quick
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedModel

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "eager",
}


@pytest.fixture(scope="session")
def oracle() -> Callable[..., PreTrainedModel]:
    """A random model of transformers; every parameter differs from what a fresh one has, biases and norms too."""

    def make(*, family: str = "llama", seed: int = 0, **changes) -> PreTrainedModel:
        settings, model = {
            "llama": (LlamaConfig, LlamaForCausalLM),
            "mistral": (MistralConfig, MistralForCausalLM),
        }[family]
        torch.manual_seed(seed)
        network = model(settings(**(SMALL | changes))).eval()
        with torch.no_grad():
            for name, value in network.named_parameters():
                noise = torch.randn_like(value)
                value.copy_(1 + 0.2 * noise if "norm" in name else 0.15 * noise)
        return network

    return make


@pytest.fixture(scope="session")
def oracle_logits() -> Callable[[PreTrainedModel, np.ndarray], np.ndarray]:
    def run(network: PreTrainedModel, tokens: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return network(torch.from_numpy(np.array(tokens, np.int64))).logits.float().numpy()

    return run


@pytest.fixture(scope="session")
def full_pass() -> Callable[..., np.ndarray]:
    """All tokens in one pass over a cache that is larger than they need."""

    def run(model, params, tokens: np.ndarray, *, slots: int = 64) -> np.ndarray:
        rows = tokens.shape[0]
        start = jnp.zeros(rows, jnp.int32)
        cache = model.init_cache(rows, slots)
        return np.asarray(quick(model.apply)(params, jnp.asarray(tokens, jnp.int32), cache, start)[0])

    return run


@pytest.fixture(scope="session")
def random_tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, SMALL["vocab_size"], (2, 40))


@pytest.fixture(scope="session")
def saved(oracle, tmp_path_factory):
    """A directory as transformers writes it."""
    folder = tmp_path_factory.mktemp("saved")
    oracle().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A directory of its own for each test to spoil."""
    return shutil.copytree(saved, tmp_path / "model")

"""`generate` holds one copy of each cache, the target's and the drafter's."""

import jax
import jax.numpy as jnp
import pytest
from marks import at_once

from specdec_jax import GenerateConfig, draft_model, generate, ngram
from specdec_jax.models import LlamaConfig, model_from_config
from specdec_jax.models.language_model import init_params

CONFIG = LlamaConfig(
    vocab_size=32,
    width=16,
    mlp_width=16,
    num_layers=4,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    max_positions=4096,
    tied_head=True,
)
ROWS, CAPACITY = 4, 4000
CACHES = {"ngram": 1, "draft_model": 2}


@pytest.mark.parametrize("layers", at_once(["stacked", "unrolled"], ["stacked"]))
@pytest.mark.parametrize("name", at_once(CACHES, ["draft_model"]))
def test_one_copy_of_each_cache(name, layers):
    model = model_from_config(CONFIG, dtype=jnp.float32, layers=layers)
    params = init_params(CONFIG, jax.random.key(0), dtype=jnp.float32, layers=layers)
    drafter, drafter_params = (ngram(), None) if name == "ngram" else (draft_model(model), params)

    def run(params, drafter_params, prompts, lengths, key):
        config = GenerateConfig(capacity=CAPACITY, draft_length=3, prefill_chunk=64)
        options = {"key": key, "config": config, "max_new_tokens": 16}
        return generate(model, params, drafter, drafter_params, prompts, lengths, **options).tokens

    prompts, lengths = jnp.zeros((ROWS, 8), jnp.int32), jnp.full(ROWS, 8)
    program = jax.jit(run).lower(params, drafter_params, prompts, lengths, jax.random.key(0)).compile()
    memory = program.memory_analysis()
    assert memory is not None
    cache = sum(leaf.nbytes for leaf in jax.tree.leaves(model.init_cache(ROWS, CAPACITY)))
    assert CACHES[name] * cache < memory.temp_size_in_bytes < (CACHES[name] + 0.25) * cache

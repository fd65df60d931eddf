"""`generate` holds one copy of each cache, the target's and the drafter's."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from specdec_jax import GenerateConfig, draft_model, generate, ngram
from specdec_jax.models import LlamaConfig, model_from_config
from specdec_jax.models.language_model import init_params

LARGE = LlamaConfig(
    vocab_size=32,
    width=16,
    mlp_width=16,
    num_layers=8,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    max_positions=4096,
    tied_head=True,
)
SMALL = dataclasses.replace(LARGE, num_layers=6)
"""Other shapes than the target's: arrays of zeros of one shape would be made by copying one more."""
ROWS, CAPACITY = 4, 4000


@pytest.mark.heavy
@pytest.mark.parametrize("layers", ["stacked", "unrolled"])
@pytest.mark.parametrize("drafts", ["n-grams", "a model"])
def test_one_copy_of_each_cache(drafts, layers):
    models = [model_from_config(config, dtype=jnp.float32, layers=layers) for config in (LARGE, SMALL)]
    (params, small_params) = (
        init_params(config, jax.random.key(0), dtype=jnp.float32, layers=layers) for config in (LARGE, SMALL)
    )
    drafter, drafter_params = (draft_model(models[1]), small_params) if drafts == "a model" else (ngram(), None)

    def run(params, drafter_params, prompts, lengths, key):
        config = GenerateConfig(capacity=CAPACITY, draft_length=3, prefill_chunk=64)
        options = {"key": key, "config": config, "max_new_tokens": 16}
        return generate(models[0], params, drafter, drafter_params, prompts, lengths, **options).tokens

    prompts, lengths = jnp.zeros((ROWS, 8), jnp.int32), jnp.full(ROWS, 8)
    program = jax.jit(run).lower(params, drafter_params, prompts, lengths, jax.random.key(0)).compile()
    memory = program.memory_analysis()
    assert memory is not None
    caches = [model.init_cache(ROWS, CAPACITY) for model in models[: 2 if drafts == "a model" else 1]]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(caches))
    assert size < memory.temp_size_in_bytes < 1.15 * size

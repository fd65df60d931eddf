"""Shipped models under a caller's `vmap` of keys, with the default controller: as many rounds as the slowest needs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick
from small import fresh_params

from specdec_jax import GenerateConfig, SamplingParams, draft_model, generate, models, ngram

V = 23
CONFIG = models.LlamaConfig(
    vocab_size=V, width=16, mlp_width=24, num_layers=3, num_heads=4, num_kv_heads=2, head_size=8, max_positions=64
)
SMALLER = dataclasses.replace(CONFIG, num_layers=1)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["ngram", "draft_model"])
def test_each_key_gives_what_it_gives_alone(kind):
    target = models.model_from_config(CONFIG, dtype=jnp.float32, layers="stacked")
    params, drafter, drafter_params = fresh_params(CONFIG, "stacked"), ngram(), None
    if kind == "draft_model":
        drafter = draft_model(models.model_from_config(SMALLER, dtype=jnp.float32, layers="stacked"))
        drafter_params = fresh_params(SMALLER, "stacked")

    def answer(key):  # arrays alone: the tests' own shape checks know no axis beside the rows of a result
        result = generate(
            target,
            params,
            drafter,
            drafter_params,
            np.array([[3, 4, 5, 3, 4, 5], [9, 2, 0, 0, 0, 0]]),
            [6, 2],
            key=key,
            sampling=SamplingParams(temperature=jnp.array([0.0, 1.0])),
            config=GenerateConfig(capacity=40, draft_length=3, rule="coupled", prefill_chunk=4),
            max_new_tokens=jnp.array([9, 16]),
            eos_tokens=[1],
        )
        return result.tokens, result.lengths, result.finish_reason

    keys = jax.random.split(jax.random.key(8), 3)
    together, alone = quick(jax.vmap(answer))(keys), quick(answer)
    for index, key in enumerate(keys):
        for found, wanted in zip(together, alone(key), strict=True):
            np.testing.assert_array_equal(found[index], wanted)

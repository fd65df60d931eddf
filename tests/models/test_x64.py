"""A caller may have 64 bits enabled in JAX: shipped models then give the tokens that they give without."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once
from small import fresh_params

from specdec_jax import GenerateConfig, SamplingParams, draft_model, early_exit, feature_head, generate, models, ngram
from specdec_jax.models.feature_head import FeatureHeadConfig, draft_places, feature_model, init_head_params

pytestmark = pytest.mark.usefixtures("quick_programs")

V = 23
CONFIG = models.LlamaConfig(
    vocab_size=V, width=16, mlp_width=24, num_layers=3, num_heads=4, num_kv_heads=2, head_size=8, max_positions=64
)
SMALLER = dataclasses.replace(CONFIG, num_layers=1)
HEAD = FeatureHeadConfig(SMALLER, hidden_layers=(0, 2), hidden_width=16, draft_vocab_size=9)


def drafter_of(kind, layers):
    """What drafts, and its parameters."""
    match kind:
        case "none":
            return None, None
        case "ngram":
            return ngram(), None
        case "early_exit":
            return early_exit(models.model_from_config(CONFIG, dtype=jnp.float32, layers=layers, depth=2)), None
        case "feature_head":
            ids = np.arange(0, 18, 2)
            own = init_head_params(HEAD, jax.random.key(0), ids, jnp.ones((V, 16)))
            embedding = fresh_params(CONFIG, layers)["embedding"]["weight"]
            params = {"head": own, "embedding": embedding, "draft_place": draft_places(ids, V)}
            return feature_head(feature_model(HEAD, jnp.dtype("float32"))), params
    model = models.model_from_config(SMALLER, dtype=jnp.float32, layers=layers)
    return draft_model(model), fresh_params(SMALLER, layers)


DRAFTERS = ("none", "ngram", "draft_model", "early_exit", "feature_head")
CASES = [(drafter, layers, "blocks") for drafter in DRAFTERS for layers in ("stacked", "unrolled")]
CASES += [("none", layers, "xla") for layers in ("stacked", "unrolled")]


@pytest.mark.parametrize(("drafter", "layers", "kernel"), at_once(CASES, [("draft_model", "stacked", "blocks")]))
def test_the_tokens_are_those_of_32_bits(drafter, layers, kernel):
    hidden = HEAD.hidden_layers if drafter == "feature_head" else None
    how = {"dtype": jnp.float32, "layers": layers, "attention": kernel}
    target = models.model_from_config(CONFIG, **how, hidden_layers=hidden)
    params = fresh_params(CONFIG, layers)
    made, drafter_params = drafter_of(drafter, layers)

    def tokens():
        answer = generate(
            target,
            params,
            made,
            params if drafter == "early_exit" else drafter_params,
            np.array([[3, 4, 5, 3, 4, 5], [9, 2, 0, 0, 0, 0]]),
            [6, 2],
            key=jax.random.key(3),
            sampling=SamplingParams(temperature=jnp.array([0.0, 1.0]), top_k=9, top_p=0.95),
            config=GenerateConfig(capacity=64, draft_length=3, rule="coupled", prefill_chunk=4),
            max_new_tokens=16,
            eos_tokens=[1],
        )
        return answer.tokens, answer.lengths

    wanted = tokens()
    # Where 64 bits are enabled and promotion is strict, JAX refuses even a Python number beside an int32.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        found = tokens()
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, want)

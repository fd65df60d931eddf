"""Equality on real text: SmolLM2 in float32 says the same with every drafter as with none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import GenerateConfig, SamplingParams, draft_model, early_exit, generate, models, ngram

pytestmark = pytest.mark.heavy

TEXTS = [
    "Repeat after me: one two three, one two three, one two",
    "The capital of France",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
]
NEW = 16


@pytest.fixture(scope="module")
def stacked():
    """With its layers in one scan, for these tests compile many programs and run each for a moment."""
    return models.load("smollm2-135m", dtype=jnp.float32, layers="stacked")


@pytest.fixture(scope="module")
def inputs(stacked):
    """Prompts of uneven lengths in one batch, padded on the right."""
    encoded = [stacked.tokenizer.encode(text) for text in TEXTS]
    lengths = np.array([len(ids) for ids in encoded], np.int32)
    prompts = np.array([ids + [0] * (lengths.max() - len(ids)) for ids in encoded], np.int32)
    return prompts, lengths


@pytest.fixture(scope="module")
def say(stacked, inputs):
    def say(drafter, drafter_params, rule, temperature, K=1):
        out = generate(
            stacked.model,
            stacked.params,
            drafter,
            drafter_params,
            *inputs,
            key=jax.random.key(0),
            sampling=SamplingParams(temperature=temperature),
            config=GenerateConfig(capacity=64, draft_length=K, rule=rule, prefill_chunk=16),
            max_new_tokens=NEW,
        )
        return np.asarray(out.tokens), out.summary()

    return say


@pytest.fixture(scope="module")
def greedy(say):
    return say(None, None, "greedy", 0.0)[0]


@pytest.fixture(scope="module")
def weak(stacked):
    """SmolLM2 with a twentieth of noise on every weight: it errs now and then."""

    @jax.jit
    def noisy(params):
        leaves, tree = jax.tree.flatten(params)
        keys = jax.random.split(jax.random.key(1), len(leaves))
        moved = [x + 0.05 * x * jax.random.normal(key, x.shape) for key, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(tree, moved)

    return noisy(stacked.params)


@pytest.mark.parametrize("K", [1, 2, 5, 8])
def test_greedy_text_with_ngrams(say, greedy, K):
    tokens, summary = say(ngram(), None, "greedy", 0.0, K)
    np.testing.assert_array_equal(tokens, greedy)
    assert summary["accepted"] > 0


@pytest.mark.parametrize("K", [1, 2, 5, 8])
def test_greedy_text_with_itself_and_with_a_weaker_self_as_draft(stacked, say, greedy, weak, K):
    drafter = draft_model(stacked.model)
    tokens, summary = say(drafter, stacked.params, "greedy", 0.0, K)
    np.testing.assert_array_equal(tokens, greedy)
    assert summary["rounds"] == len(TEXTS) * -(-NEW // (K + 1))
    tokens, summary = say(drafter, weak, "greedy", 0.0, K)
    np.testing.assert_array_equal(tokens, greedy)
    assert 0 < summary["acceptance_rate"] < 1


@pytest.fixture(scope="module")
def coupled(say):
    return say(None, None, "coupled", 0.8)[0]


def test_coupled_text_belongs_to_target_and_key(say, coupled):
    np.testing.assert_array_equal(say(ngram(), None, "coupled", 0.8, K=5)[0], coupled)


def test_coupled_text_with_its_own_first_layers(stacked, say, coupled):
    drafter = early_exit(stacked.variant(depth=24))
    tokens, summary = say(drafter, stacked.params, "coupled", 0.8, K=3)
    np.testing.assert_array_equal(tokens, coupled)
    assert 0 < summary["acceptance_rate"] < 1

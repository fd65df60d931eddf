"""Whole texts without a cache: the same logits as decoding, several texts a row, and gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick
from small import fresh_params

from specdec_jax import models

CONFIG = models.LlamaConfig(
    vocab_size=31, width=16, mlp_width=24, num_layers=3, num_heads=4, num_kv_heads=2, head_size=8, max_positions=64
)
TOKENS = np.random.default_rng(0).integers(0, 31, (2, 12)).astype(np.int32)
PLACES = np.broadcast_to(np.arange(12, dtype=np.int32), (2, 12))


def whole(config, params, tokens, positions, segments, **options):
    text = models.text_model_from_config(config, dtype=jnp.float32, **options)

    @quick
    def run(*args):
        features, hidden = text.features(params, *args)
        return text.logits(params, features), hidden

    return run(*map(jnp.asarray, (tokens, positions, segments)))


@pytest.mark.parametrize("layers", ["stacked", "unrolled"])
@pytest.mark.parametrize("window", [None, 3])
def test_the_same_as_decoding(layers, window, full_pass):
    config = dataclasses.replace(CONFIG, sliding_window=window)
    params = fresh_params(CONFIG, layers)
    got, _ = whole(config, params, TOKENS, PLACES, np.zeros_like(TOKENS), layers=layers)
    model = models.model_from_config(config, dtype=jnp.float32, layers=layers)
    np.testing.assert_allclose(got, full_pass(model, params, TOKENS), atol=1e-5)


def test_texts_of_a_row_do_not_see_each_other():
    params = fresh_params(CONFIG)
    segments = np.broadcast_to(np.array([1] * 5 + [2] * 7, np.int32), (2, 12))
    places = np.broadcast_to(np.array([*range(5), *range(7)], np.int32), (2, 12))
    packed, hidden = whole(CONFIG, params, TOKENS, places, segments, hidden_layers=(0, -1))
    alone, states = whole(
        CONFIG, params, TOKENS[:, 5:], PLACES[:, :7], np.zeros((2, 7), np.int32), hidden_layers=(0, -1)
    )
    np.testing.assert_allclose(packed[:, 5:], alone, atol=1e-5)
    np.testing.assert_allclose(hidden[:, 5:], states, atol=1e-5)


@pytest.mark.parametrize("layer", [3, -4])
def test_a_layer_that_is_not_there(layer):
    with pytest.raises(ValueError, match=rf"hidden_layers has {layer}, but the model has 3 layers; expected -3 to 2"):
        models.text_model_from_config(CONFIG, dtype=jnp.float32, hidden_layers=(0, layer))


def test_it_has_a_gradient():
    params = fresh_params(CONFIG)
    text = models.text_model_from_config(CONFIG, dtype=jnp.float32)

    @quick
    @jax.grad
    def gradient(params):
        features, _ = text.features(params, jnp.asarray(TOKENS), jnp.asarray(PLACES), jnp.zeros_like(TOKENS))
        return text.logits(params, features).var()

    assert all(jnp.isfinite(leaf).all() and (leaf != 0).any() for leaf in jax.tree.leaves(gradient(params)))

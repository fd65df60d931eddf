"""The check of models: it passes those that keep the contract, and names what the others break."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import LanguageModel, models
from specdec_jax.testing import (
    BrokenContractError,
    check_language_model,
    history_model,
    markov_model,
    random_logits,
)

V = 8
MODEL, PARAMS = history_model(V), random_logits(0, 97, V)


def changed(function):
    """The toy with another ``apply``: ``function(apply, params, tokens, cache, lengths)``."""
    return MODEL._replace(apply=lambda *args: function(MODEL.apply, *args))


@pytest.mark.parametrize("model", [MODEL, history_model(V, max_positions=9)])
def test_the_toys_pass(model):
    check_language_model(model, PARAMS)
    check_language_model(markov_model(V, max_positions=4), random_logits(0, V, V))


@pytest.mark.parametrize("layers", [pytest.param("stacked", marks=pytest.mark.heavy), "unrolled"])
def test_our_models_pass(layers):
    config = models.LlamaConfig(
        vocab_size=11, width=8, mlp_width=8, num_layers=2, num_heads=2, num_kv_heads=1, head_size=4, max_positions=64
    )
    params = models.init_params(config, jax.random.key(0), dtype=jnp.float32, layers=layers)
    check_language_model(models.model_from_config(config, dtype=jnp.float32, layers=layers), params)


def clamped(apply, params, tokens, cache, lengths):
    """Writes at the longest row's length in all rows."""
    return apply(params, tokens, cache, jnp.broadcast_to(lengths.max(), lengths.shape))


def sees_ahead(apply, params, tokens, cache, lengths):
    logits, hidden, cache = apply(params, tokens, cache, lengths)
    return logits + tokens[:, -1:, None].astype(jnp.float32), hidden, cache


def mixes_rows(apply, params, tokens, cache, lengths):
    logits, hidden, cache = apply(params, tokens, cache, lengths)
    return logits + tokens[-1, 0].astype(jnp.float32), hidden, cache


def counts_slots(apply, params, tokens, cache, lengths):
    logits, hidden, cache = apply(params, tokens, cache, lengths)
    return logits + cache.shape[1], hidden, cache


def sees_stale_slots(apply, params, tokens, cache, lengths):
    logits, hidden, cache = apply(params, tokens, cache, lengths)
    slot = jnp.arange(cache.shape[1])[None]
    stale = jnp.where(slot >= lengths[:, None] + tokens.shape[1], cache, -1).max(axis=1)
    return logits + stale.astype(jnp.float32)[:, None, None], hidden, cache


def forgets(apply, params, tokens, cache, lengths):
    """Sees only the tokens of its own call."""
    return apply(params, tokens, cache, jnp.zeros_like(lengths))


BROKEN = {
    r"logits \[B, T, V\].* but they are float32\[2, 144, 7\]": lambda apply, *args: (
        apply(*args)[0][..., :-1],
        *apply(*args)[1:],
    ),
    "the cache in the form it was given, but it was int32": lambda apply, *args: (
        *apply(*args)[:2],
        apply(*args)[2].astype(jnp.float32),
    ),
    r"hidden \[B, T, ...\] or None, here \[2, 144, ...\], but hidden\['last'\] is \[7\]": lambda apply, *args: (
        apply(*args)[0],
        {"last": jnp.zeros(7)},
        apply(*args)[2],
    ),
    "a finite largest logit, but some are NaN": lambda apply, *args: (apply(*args)[0] * jnp.nan, *apply(*args)[1:]),
    "depend on no later token": sees_ahead,
    "rows do not depend on each other": mixes_rows,
    "the capacity of the cache": counts_slots,
    "rolled back leaves no trace": sees_stale_slots,
    "fed in pieces give the logits of one pass": forgets,
    "each row is written at its own length": clamped,
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_broken_is_named(message):
    with pytest.raises(BrokenContractError, match=message):
        check_language_model(changed(BROKEN[message]), PARAMS)


def test_a_model_that_changes_between_calls():
    calls = iter(range(100))

    def apply(params, tokens, cache, lengths):
        logits, hidden, cache = MODEL.apply(params, tokens, cache, lengths)
        drift = jax.pure_callback(lambda: np.float32(next(calls)), jax.ShapeDtypeStruct((), jnp.float32))
        return logits + drift, hidden, cache

    with pytest.raises(BrokenContractError, match="a pure function: the same arguments give the same logits"):
        check_language_model(MODEL._replace(apply=apply), PARAMS)


def ring(slots: int) -> LanguageModel:
    """Sums up the last ``slots`` tokens out of as many slots: right for plain decoding, and cannot be rolled back."""

    def apply(params, tokens, cache, lengths):
        def one(cache, inputs):
            token, place = inputs
            cache = cache.at[jnp.arange(len(token)), place % slots].set(token)
            age = (place[:, None] - jnp.arange(slots)[None]) % slots
            weights = jnp.where(age <= place[:, None], 1 + age, 0)
            return cache, params[(cache * weights).sum(1) % len(params)]

        places = lengths[:, None] + jnp.arange(tokens.shape[1])[None]
        cache, logits = jax.lax.scan(one, cache, (tokens.T, places.T))
        return logits.swapaxes(0, 1), None, cache

    return LanguageModel(lambda batch, capacity: jnp.zeros((batch, slots), jnp.int32), apply, V)


@pytest.mark.parametrize("slots", [8, 16, 64, 128])
def test_a_ring_that_cannot_be_rolled_back(slots):
    with pytest.raises(BrokenContractError, match="rolled back leaves no trace"):
        check_language_model(ring(slots), PARAMS)


@pytest.mark.heavy
def test_a_ring_longer_than_what_is_fed_takes_a_longer_length():
    check_language_model(ring(64), PARAMS, length=24)
    with pytest.raises(BrokenContractError, match="rolled back leaves no trace"):
        check_language_model(ring(256), PARAMS, length=288)


def test_a_length_that_rolls_nothing_back():
    with pytest.raises(ValueError, match="length is 1; expected >= 2"):
        check_language_model(MODEL, PARAMS, length=1)

"""The contract of LanguageModel: however tokens are fed, each is scored by what stands before it, and only that."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax
from programs import quick
from small import fresh_params

from specdec_jax import models
from specdec_jax.cache import KVCache
from specdec_jax.models.stack import resolve

CONFIG = models.LlamaConfig(
    vocab_size=61,
    width=24,
    mlp_width=40,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
    max_positions=128,
    rope_theta=100.0,
    rope_factors=(1.0, 1.0, 2.0, 4.0),
    attention_bias=True,
    mlp_bias=True,
    sliding_window=9,
)
SLOTS = 48


def close(got, want):
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)


def lively_params(layers):
    """Fresh weights are small; larger ones make every token matter. The same in both layouts."""
    params = jax.tree.map(lambda leaf: 8 * leaf if leaf.ndim > 1 else leaf, fresh_params(CONFIG, "unrolled"))
    if layers == "stacked":
        each = [params["layers"][i] for i in range(CONFIG.num_layers)]
        params = {**params, "layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)}
    return params


@pytest.fixture(scope="module", params=["unrolled", "stacked"])
def built(request):
    model = models.model_from_config(CONFIG, dtype=jnp.float32, layers=request.param)
    return model, lively_params(request.param), quick(model.apply)


@pytest.fixture(scope="module")
def tokens():
    return jax.random.randint(jax.random.key(2), (3, 30), 0, CONFIG.vocab_size)


@pytest.fixture(scope="module")
def full(built, tokens):
    model, params, apply = built
    return apply(params, tokens, model.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))[0]


def test_chunks_equal_one_pass(built, tokens, full):
    model, params, apply = built
    cache, done = model.init_cache(3, SLOTS), 0
    for size in (8, 1, 5, 8, 1, 5, 1, 1):
        logits, _, cache = apply(params, tokens[:, done : done + size], cache, jnp.full(3, done, jnp.int32))
        close(logits, full[:, done : done + size])
        done += size
    assert done == 30


def test_ragged_rows_equal_one_pass(built, tokens, full):
    """Rows at different lengths share each pass."""
    model, params, apply = built
    at = np.array([0, 9, 17])
    _, _, cache = apply(params, tokens[:, :24], model.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))
    for _ in range(3):
        place = at[:, None] + np.arange(4)
        fed = np.take_along_axis(np.asarray(tokens), place, axis=1)
        logits, _, cache = apply(params, jnp.asarray(fed), cache, jnp.asarray(at, jnp.int32))
        close(logits, np.take_along_axis(np.asarray(full), place[:, :, None], axis=1))
        at = at + np.array([4, 1, 3])


def test_rollback_leaves_no_trace(built, tokens, full):
    """After drafts that were thrown away, the rest is scored as if they had never been fed."""
    model, params, apply = built
    _, _, cache = apply(params, tokens[:, :12], model.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))
    wrong = (tokens[:, 12:20] + 7) % CONFIG.vocab_size
    _, _, cache = apply(params, wrong, cache, jnp.full(3, 12, jnp.int32))
    logits, _, _ = apply(params, tokens[:, 12:16], cache, jnp.full(3, 12, jnp.int32))
    close(logits, full[:, 12:16])


def test_a_broken_row_spoils_neither_its_neighbours_nor_its_successor(built, tokens, full):
    model, params, apply = built
    poison = params["embedding"]["weight"].at[60].set(jnp.nan)
    poisoned = {**params, "embedding": {"weight": poison}}
    fed = jnp.where(tokens == 60, 0, tokens).at[1, 5].set(60)
    clean = apply(params, fed.at[1, 5].set(0), model.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))[0]
    logits, _, cache = apply(poisoned, fed, model.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))
    close(logits[0], clean[0])
    close(logits[2], clean[2])
    close(logits[1, :5], clean[1, :5])
    assert np.isnan(logits[1, 5]).all()
    assert np.isnan(logits[1, 6]).all(), "whoever sees the broken token must be broken too"
    # Another sequence moves into the slots of the broken one.
    logits, _, _ = apply(params, tokens[:, :4], cache, jnp.zeros(3, jnp.int32))
    close(logits, full[:, :4])


def test_layouts_are_equal(tokens):
    logits = {}
    for layers in ("unrolled", "stacked"):
        model = models.model_from_config(CONFIG, dtype=jnp.float32, layers=layers)
        start = jnp.zeros(3, jnp.int32)
        logits[layers] = quick(model.apply)(lively_params(layers), tokens, model.init_cache(3, SLOTS), start)[0]
    close(logits["stacked"], logits["unrolled"])


@pytest.mark.parametrize("layers", ["unrolled", "stacked"])
def test_hidden_states(layers, tmp_path, oracle, random_tokens):
    """Those after layer i are what transformers calls hidden_states[i + 1], the last one before the final norm."""
    network = oracle()
    network.save_pretrained(tmp_path)
    last = []
    network.model.norm.register_forward_pre_hook(lambda module, inputs: last.append(inputs[0]))
    with torch.no_grad():
        states = network(torch.from_numpy(random_tokens), output_hidden_states=True).hidden_states
    loaded = models.load(tmp_path, dtype=jnp.float32, layers=layers, hidden_layers=(-1, 0))
    start = jnp.zeros(2, jnp.int32)
    tokens = jnp.asarray(random_tokens, jnp.int32)
    _, hidden, _ = quick(loaded.model.apply)(loaded.params, tokens, loaded.model.init_cache(2, 64), start)
    assert hidden.shape == (2, 40, 2, 32)
    np.testing.assert_allclose(hidden[:, :, 0], last[0], atol=1e-4)
    np.testing.assert_allclose(hidden[:, :, 1], states[1], atol=1e-4)


def test_no_hidden_states_by_default(built, tokens):
    model, params, apply = built
    assert apply(params, tokens, model.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))[1] is None


def test_padding_of_the_vocabulary_is_impossible(tokens):
    model = models.model_from_config(CONFIG, dtype=jnp.float32, num_tokens=50, holes=(0, 7, 60))
    params = fresh_params(CONFIG)
    logits = quick(model.apply)(params, tokens, model.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))[0]
    assert model.vocab_size == 61
    impossible = np.isin(np.arange(61), [0, 7, *range(50, 61)])
    assert np.isneginf(logits[:, :, impossible]).all()
    assert np.isfinite(logits[:, :, ~impossible]).all()


def test_equal_arguments_give_the_same_model():
    make = models.model_from_config
    assert make(CONFIG) is make(CONFIG)
    assert make(CONFIG, hidden_layers=(-1,)) is make(CONFIG, hidden_layers=(2,))
    assert make(CONFIG, layers="stacked") is not make(CONFIG, layers="unrolled")


@pytest.mark.parametrize("layers", ["unrolled", "stacked"])
def test_the_cache_is_written_in_place(layers):
    """In a loop that carries it, nothing as large as the cache is copied or allocated beside it."""
    model = models.model_from_config(CONFIG, dtype=jnp.float32, layers=layers)
    params = fresh_params(CONFIG, layers)

    def run(params, tokens, k, v, lengths):
        def body(state):
            tokens, cache, lengths = state
            logits, _, cache = model.apply(params, tokens, cache, lengths)
            return jnp.argmax(logits, axis=-1).astype(jnp.int32), cache, lengths + 1

        return lax.while_loop(lambda state: (state[2] < 20).any(), body, (tokens, KVCache(k=k, v=v), lengths))

    cache = model.init_cache(2, 4096)
    tokens, lengths = jnp.zeros((2, 2), jnp.int32), jnp.zeros(2, jnp.int32)
    lowered = jax.jit(run, donate_argnums=(2, 3)).lower(params, tokens, cache.k, cache.v, lengths)
    memory = lowered.compile().memory_analysis()
    assert memory is not None
    size = cache.k.size * 4
    assert memory.alias_size_in_bytes >= 2 * size
    # Room for one layer's keys and values, three of which make the whole, and for activations.
    assert memory.temp_size_in_bytes < size


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_kv_heads": 3}, "num_heads is 4 and num_kv_heads 3; expected a multiple"),
        ({"head_size": 7, "rope_factors": None}, "head_size is 7; expected an even number"),
        ({"rope_factors": (1.0,)}, "rope_factors has 1 numbers; expected one a pair, 4"),
        ({"sliding_window": 0}, "sliding_window is 0; expected at least 1"),
    ],
)
def test_impossible_configs(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": jnp.int8}, "dtype is int8; expected float32 or bfloat16"),
        ({"hidden_layers": (3,)}, "hidden_layers has 3, but the model has 3 layers; expected -3 to 2"),
        ({"num_tokens": 62}, "num_tokens is 62; expected 1 to 61"),
        ({"holes": (3, 61)}, r"holes are \(3, 61\); expected ids from 0 to 60"),
    ],
)
def test_impossible_models(arguments, message):
    with pytest.raises(ValueError, match=message):
        models.model_from_config(CONFIG, **arguments)


def test_impossible_layout():
    with pytest.raises(ValueError, match="layers is 'scanned'; expected 'auto', 'stacked' or 'unrolled'"):
        resolve("scanned")

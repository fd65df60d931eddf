"""Every family's logits agree with transformers, however tokens are fed, and whatever was drafted in between."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from families import CASES, ONE_A_FAMILY, make
from marks import at_once
from programs import quick

from specdec_jax import models
from specdec_jax.models.stack import Layout

SLOTS = 48
# Each layout gets half of the cases.
LAYOUTS: dict[str, Layout] = {name: "stacked" if index % 2 else "unrolled" for index, name in enumerate(CASES)}
# Longer than every window in the cases, so that a draft crosses its edge wherever it starts.
DRAFT = 8


@pytest.fixture(scope="module")
def networks(oracle_logits, random_tokens):
    """Each network and its logits, made once."""
    made = {}

    def get(name):
        if name not in made:
            network = make(CASES[name])
            made[name] = network, oracle_logits(network, random_tokens)
        return made[name]

    return get


@pytest.fixture(scope="module")
def built(networks, tmp_path_factory):
    """Each case loaded from the directory that transformers writes, with its function compiled once a shape."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("family")
            networks(name)[0].save_pretrained(folder)
            loaded = models.load(folder, dtype=jnp.float32, layers=LAYOUTS[name])
            made[name] = loaded, quick(loaded.model.apply)
        return made[name]

    return get


def close(got, want):
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)


def at(place, rows=2):
    return jnp.full(rows, place, jnp.int32)


@pytest.mark.parametrize("name", CASES)
def test_logits(name, networks, built, random_tokens):
    loaded, apply = built(name)
    want = networks(name)[1]
    assert np.ptp(want) > 0.5, "the oracle's logits are too flat to tell anything"
    tokens = jnp.asarray(random_tokens, jnp.int32)
    close(apply(loaded.params, tokens, loaded.model.init_cache(2, SLOTS), at(0))[0], want)


@pytest.mark.parametrize("name", at_once(CASES, ONE_A_FAMILY))
def test_chunks_and_rejected_drafts_leave_no_trace(name, networks, built, random_tokens):
    """A prompt in chunks, then single tokens, each after a draft of garbage that was thrown away."""
    loaded, apply = built(name)
    want = networks(name)[1]
    tokens = jnp.asarray(random_tokens, jnp.int32)
    garbage = (tokens + 11) % 97
    cache = loaded.model.init_cache(2, SLOTS)
    for done in (0, DRAFT):
        logits, _, cache = apply(loaded.params, tokens[:, done : done + DRAFT], cache, at(done))
        close(logits, want[:, done : done + DRAFT])
    done = 2 * DRAFT
    # Rejected in full, kept in part, and rejected again just before the next block is read.
    for kept in (0, 3, 1, 0, 5):
        drafted = jnp.concatenate([tokens[:, done : done + kept], garbage[:, done + kept : done + DRAFT]], axis=1)
        logits, _, cache = apply(loaded.params, drafted, cache, at(done))
        close(logits[:, :kept], want[:, done : done + kept])
        done += kept
    logits, _, _ = apply(loaded.params, tokens[:, done : done + DRAFT], cache, at(done))
    close(logits, want[:, done : done + DRAFT])


@pytest.mark.parametrize("name", ["gemma3", "qwen2 with windows"])
def test_rows_at_uneven_places(name, networks, built, random_tokens):
    """Windowed and global layers, when the rows of a batch are far apart."""
    loaded, apply = built(name)
    tokens, want = jnp.asarray(random_tokens, jnp.int32), networks(name)[1]
    _, _, cache = apply(loaded.params, tokens, loaded.model.init_cache(2, SLOTS), at(0))
    places = np.array([3, 29])
    fed = np.stack([random_tokens[row, place : place + DRAFT] for row, place in enumerate(places)])
    logits, _, _ = apply(loaded.params, jnp.asarray(fed, jnp.int32), cache, jnp.asarray(places, jnp.int32))
    for row, place in enumerate(places):
        close(logits[row], want[row, place : place + DRAFT])


@pytest.mark.parametrize("name", ["gemma3", "gpt2", "qwen3"])
def test_whole_texts_without_a_cache(name, networks, built, random_tokens):
    loaded, _ = built(name)
    text = models.text_model_from_config(loaded.config, dtype=jnp.float32, layers=LAYOUTS[name])
    tokens = jnp.asarray(random_tokens, jnp.int32)
    places = jnp.broadcast_to(jnp.arange(40, dtype=jnp.int32), (2, 40))
    features, _ = quick(text.features)(loaded.params, tokens, places, jnp.zeros_like(tokens))
    close(text.logits(loaded.params, features), networks(name)[1])


@pytest.mark.parametrize("name", at_once(ONE_A_FAMILY, list(ONE_A_FAMILY)[:3]))
def test_bfloat16(name, networks, built, oracle_logits, full_pass, random_tokens):
    """Against transformers in float32 with the same rounded weights: what is left is the rounding on the way.

    2e-2 of the spread of the logits, as a root mean square. The largest single difference is 0.03 to 0.08, about that
    of transformers' own bfloat16.
    """
    loaded, _ = built(name)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), loaded.params)
    model = models.model_from_config(loaded.config, dtype=jnp.bfloat16, layers=LAYOUTS[name])
    network = copy.deepcopy(networks(name)[0])
    with torch.no_grad():
        for value in network.parameters():
            value.copy_(value.bfloat16())
    want = oracle_logits(network, random_tokens)
    got = full_pass(model, params, random_tokens, slots=SLOTS)
    assert np.sqrt(np.mean((got - want) ** 2)) < 2e-2 * np.std(want)


@pytest.mark.parametrize("name", ONE_A_FAMILY)
@pytest.mark.parametrize("layers", ["unrolled", "stacked"])
def test_fresh_params_have_the_shapes_of_loaded_ones(name, layers, built, tmp_path):
    loaded, _ = built(name)
    fresh = jax.eval_shape(
        lambda: models.init_params(loaded.config, jax.random.key(0), dtype=jnp.float32, layers=layers)
    )
    if layers == LAYOUTS[name]:
        want = jax.tree.map(lambda leaf: leaf.shape, loaded.params)
        assert jax.tree.map(lambda leaf: leaf.shape, fresh) == want
    assert sum(leaf.size for leaf in jax.tree.leaves(fresh)) == sum(
        leaf.size for leaf in jax.tree.leaves(loaded.params)
    )

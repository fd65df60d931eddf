"""The first layers of a model as a drafter for it, on its own params and cache."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once
from programs import quick
from small import fresh_params

from specdec_jax import GenerateConfig, SamplingParams, constant, early_exit, generate, models

L, V = 3, 23
CONFIG = models.LlamaConfig(
    vocab_size=V, width=16, mlp_width=24, num_layers=L, num_heads=4, num_kv_heads=2, head_size=8, max_positions=64
)
TOKENS = jax.random.randint(jax.random.key(0), (2, 7), 0, V)
ZERO = jnp.zeros(2, jnp.int32)


def run(model, params, cache=None):
    """Logits and the cache after them, in one program."""
    cache = model.init_cache(2, 16) if cache is None else cache
    logits, _, cache = quick(model.apply)(params, TOKENS, cache, ZERO)
    return logits, cache


@pytest.fixture(scope="module")
def stacked_params():
    params = fresh_params(CONFIG, "stacked")
    # Layers that change little, as trained ones do, so that some guesses are right.
    return {**params, "layers": jax.tree.map(lambda leaf: 3 * np.asarray(leaf), params["layers"])}


@pytest.fixture(scope="module", params=at_once(["stacked", "unrolled"], ["stacked"]))
def built(request, stacked_params):
    """The same model in both layouts."""
    params = stacked_params
    if request.param == "unrolled":
        params = {**params, "layers": first_layers(params["layers"], range(L))}

    def model(**options):
        return models.model_from_config(CONFIG, dtype=jnp.float32, layers=request.param, **options)

    return model, params, request.param


def first_layers(stack, indices):
    return {i: jax.tree.map(lambda leaf, i=i: leaf[i], stack) for i in indices}


@pytest.mark.parametrize("depth", [1, 2])
def test_it_is_the_model_of_so_many_layers(depth, built):
    model, params, layers = built
    cache = jax.tree.map(lambda x: x + 7, model().init_cache(2, 16))
    logits, cache = run(model(depth=depth), params, cache)

    short = models.LlamaConfig(**{**vars(CONFIG), "num_layers": depth})
    stack = params["layers"]
    first = jax.tree.map(lambda x: x[:depth], stack) if layers == "stacked" else {i: stack[i] for i in range(depth)}
    part = models.model_from_config(short, dtype=jnp.float32, layers=layers)
    want, _ = run(part, {**params, "layers": first})
    np.testing.assert_allclose(logits, want, atol=1e-6)
    for side in (cache.k, cache.v):
        assert (np.asarray(side[depth:]) == 7).all(), "a layer that does not run wrote to the cache"


def test_all_layers_are_the_model(built):
    model, params, _ = built
    whole, part = (run(one, params)[0] for one in (model(), model(depth=L)))
    np.testing.assert_allclose(part, whole, atol=1e-6)


def test_the_text_is_the_targets(built):
    model, params, _ = built

    @partial(quick, static_argnums=0)
    def text(drafter, drafter_params):
        return generate(
            model(),
            params,
            drafter,
            drafter_params,
            TOKENS,
            [7, 3],
            key=jax.random.key(3),
            sampling=SamplingParams(temperature=jnp.array([0.0, 1.0])),
            config=GenerateConfig(capacity=40, draft_length=3, rule="coupled", prefill_chunk=4),
            controller=constant(),
        )

    plain, drafted = text(None, None), text(early_exit(model(depth=2)), params)
    np.testing.assert_array_equal(drafted.tokens, plain.tokens)
    assert drafted.stats.accepted.sum() > 0
    assert (drafted.stats.accepted < drafted.stats.drafted).all()


@pytest.mark.parametrize("depth", [0, L + 1])
def test_impossible_depth(depth):
    with pytest.raises(ValueError, match=rf"depth is {depth}, but the model has {L} layers; expected 1 to {L}"):
        models.model_from_config(CONFIG, depth=depth)

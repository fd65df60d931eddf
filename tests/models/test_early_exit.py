"""The first layers of a model as a drafter for it, on its own params and cache."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import GenerateConfig, SamplingParams, early_exit, generate, models

L, V = 4, 23
CONFIG = models.LlamaConfig(
    vocab_size=V, width=16, mlp_width=24, num_layers=L, num_heads=4, num_kv_heads=2, head_size=8, max_positions=64
)
TOKENS = jax.random.randint(jax.random.key(0), (2, 7), 0, V)
ZERO = jnp.zeros(2, jnp.int32)


@pytest.fixture(params=["stacked", "unrolled"])
def built(request):
    params = models.init_params(CONFIG, jax.random.key(1), dtype=jnp.float32, layers=request.param)
    # Layers that change little, as trained ones do, so that some guesses are right.
    params["layers"] = jax.tree.map(lambda leaf: 3 * leaf, params["layers"])

    def model(**options):
        return models.model_from_config(CONFIG, dtype=jnp.float32, layers=request.param, **options)

    return model, params, request.param


@pytest.mark.parametrize("depth", [1, 3])
def test_it_is_the_model_of_so_many_layers(depth, built):
    model, params, layers = built
    cache = jax.tree.map(lambda x: x + 7, model().init_cache(2, 16))
    logits, _, cache = model(depth=depth).apply(params, TOKENS, cache, ZERO)

    short = models.LlamaConfig(**{**vars(CONFIG), "num_layers": depth})
    stack = params["layers"]
    first = jax.tree.map(lambda x: x[:depth], stack) if layers == "stacked" else {i: stack[i] for i in range(depth)}
    part = models.model_from_config(short, dtype=jnp.float32, layers=layers)
    want, _, _ = part.apply({**params, "layers": first}, TOKENS, part.init_cache(2, 16), ZERO)
    np.testing.assert_allclose(logits, want, atol=1e-6)
    for side in (cache.k, cache.v):
        assert (np.asarray(side[depth:]) == 7).all(), "a layer that does not run wrote to the cache"


def test_all_layers_are_the_model(built):
    model, params, _ = built
    whole, part = (one.apply(params, TOKENS, one.init_cache(2, 16), ZERO)[0] for one in (model(), model(depth=L)))
    np.testing.assert_allclose(part, whole, atol=1e-6)


def test_the_text_is_the_targets(built):
    model, params, _ = built

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
        )

    plain, drafted = text(None, None), text(early_exit(model(depth=3)), params)
    np.testing.assert_array_equal(drafted.tokens, plain.tokens)
    assert drafted.stats.accepted.sum() > 0
    assert (drafted.stats.accepted < drafted.stats.drafted).all()


@pytest.mark.parametrize("depth", [0, L + 1])
def test_impossible_depth(depth):
    with pytest.raises(ValueError, match=rf"depth is {depth}, but the model has {L} layers; expected 1 to {L}"):
        models.model_from_config(CONFIG, depth=depth)

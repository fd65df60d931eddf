"""The unrolled head does in training what the drafter does with it when it decodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick

from specdec_jax.models import LlamaConfig
from specdec_jax.models.feature_head import (
    FeatureHeadConfig,
    draft_places,
    feature_model,
    head_graph,
    init_head_params,
)
from specdec_jax.training.unrolled import in_step, unrolled_features

V, E, T, STEPS = 13, 12, 9, 3
LAYER = LlamaConfig(
    vocab_size=V, width=16, mlp_width=24, num_layers=2, num_heads=4, num_kv_heads=2, head_size=8, max_positions=64
)
CONFIG = FeatureHeadConfig(LAYER, hidden_layers=(0, 1, 2), hidden_width=E, draft_vocab_size=5)
IDS = np.array([3, 0, 7, 12, 5])
FLOAT32 = jnp.dtype(jnp.float32)
EMBEDDING = jax.random.normal(jax.random.key(1), (V, E))
HEAD = init_head_params(CONFIG, jax.random.key(0), IDS, EMBEDDING)
PARAMS = {"head": HEAD, "embedding": EMBEDDING, "draft_place": draft_places(IDS, V)}
HIDDEN = jax.random.normal(jax.random.key(2), (2, T, 3, E))
NEXT = jax.random.randint(jax.random.key(3), (2, T), 0, V)
APPLY = quick(feature_model(CONFIG, FLOAT32).apply)
# Row 0 holds one text, row 1 two.
SEGMENTS = jnp.array([[1] * T, [1] * 4 + [2] * (T - 4)])
POSITIONS = jnp.array([range(T), [*range(4), *range(T - 4)]])


def unrolled(head, steps):
    return unrolled_features(
        head_graph(CONFIG, FLOAT32), head, HIDDEN, EMBEDDING[NEXT], POSITIONS, SEGMENTS, steps=steps
    )


def test_every_step_equals_drafting():
    outputs = quick(unrolled, static_argnums=1)(HEAD, STEPS)
    assert len(outputs) == STEPS
    texts = [(0, 0, T), (1, 0, 4), (1, 4, T)]
    for row, first, stop in texts:
        hidden, tokens = (np.roll(np.asarray(part)[row], -first, axis=0) for part in (HIDDEN, NEXT))
        for step, out in enumerate(outputs):
            reached = np.asarray(in_step(SEGMENTS, step))[row, first:stop]
            np.testing.assert_array_equal(reached, np.arange(stop - first) >= step)
            for pair in range(step, stop - first):
                want = drafted(hidden, tokens, pair, step)
                np.testing.assert_allclose(
                    np.asarray(out)[row, first + pair], np.asarray(want), atol=2e-5, err_msg=f"{row} {step} {pair}"
                )


@quick
def read(hidden, tokens):
    """T pairs in one pass from the target's states: features and cache."""
    model = feature_model(CONFIG, FLOAT32)
    cache, _ = model.init(1, 16)
    return model.apply(PARAMS, model.fuse(PARAMS, hidden[None]), tokens[None], cache, jnp.zeros(1, jnp.int32))


def drafted(hidden, tokens, pair, step):
    """Pairs up to ``pair - step`` from the target's states, and ``step`` more from what came out before them.

    The pairs after these are read too: what they leave in the cache is stale, and each step writes over it.
    """
    features, cache = read(hidden, tokens)
    true = pair - step + 1
    feature = np.asarray(features)[:, true - 1 : true]
    for place in range(true, pair + 1):
        feature, cache = APPLY(PARAMS, feature, tokens[None, place : place + 1], cache, np.array([place], np.int32))
    return np.asarray(feature)[0, 0]


def test_logits_know_only_the_draft_vocabulary():
    model = feature_model(CONFIG, FLOAT32)
    logits = model.logits(PARAMS, jnp.ones((1, 1, 16)))[0, 0]
    known = np.isfinite(logits)
    assert sorted(np.flatnonzero(known)) == sorted(IDS)
    np.testing.assert_array_equal(np.argsort(logits[IDS]), np.argsort(HEAD["head"]["weight"] @ HEAD["norm"]["weight"]))


@pytest.mark.parametrize("steps", [1, STEPS])
def test_gradients_are_finite(steps):
    def total(params):
        outputs = unrolled(params, steps)
        return sum(jnp.where(in_step(SEGMENTS, j)[..., None], out, 0).var() for j, out in enumerate(outputs))

    gradient = quick(jax.grad(total))(HEAD)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))

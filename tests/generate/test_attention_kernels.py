"""Generation with every attention kernel that a CPU can run, if need be interpreted: exact like the plain loop's."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import GenerateConfig, SamplingParams, draft_model, early_exit, models
from specdec_jax.models.attention_kernels import Kernel, find
from specdec_jax.models.paged_attention import PAGE, paged
from specdec_jax.testing import check_language_model
from specdec_jax.testing.equality import Pair, answers, equality
from specdec_jax.testing.next_tokens import next_tokens

V, K = 13, 3
CONFIG = models.LlamaConfig(V, 16, 16, 2, 4, 2, 128, 96)
KERNELS = {
    "xla": (find("xla"), jnp.float32),
    "paged": (Kernel(partial(paged, interpret=True), PAGE), jnp.bfloat16),
}
WAYS = [("xla", rule, drafter) for rule in ("greedy", "coupled") for drafter in ("model", "exit")]
SETTINGS = GenerateConfig(capacity=40, draft_length=K, prefill_chunk=4)
PROMPTS = np.array([[1, 0, 2, 5, 5, 7], [3, 3, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0]], np.int32)
LENGTHS = np.array([6, 2, 1], np.int32)

pytestmark = pytest.mark.usefixtures("quick_programs")


@cache
def model(name, **options):
    kernel, dtype = KERNELS[name]
    return models.model_from_config(CONFIG, dtype=dtype, layers="stacked", attention=kernel, **options)


@cache
def params(name, noise=0.0):
    """Weights so large that the law of the next token depends on all tokens before it."""
    rng = np.random.default_rng(0)
    fresh = models.init_params(CONFIG, jax.random.key(1), dtype=jnp.float32, layers="stacked")

    def large(leaf):
        spread = noise * leaf.std() * rng.normal(size=leaf.shape) if leaf.ndim > 2 else 0.0
        return jnp.asarray(8 * (leaf + spread) if leaf.ndim > 1 else leaf, KERNELS[name][1])

    return jax.tree.map(large, fresh)


def pairs(name, drafter):
    if drafter == "model":
        return Pair(model(name), params(name), draft_model(model(name)), params(name, 0.3))
    return Pair(model(name), params(name), early_exit(model(name, depth=1)), params(name))


@pytest.mark.heavy
@pytest.mark.parametrize("name", KERNELS)
def test_models_keep_the_contract(name):
    tolerance = 1e-3 if KERNELS[name][1] == jnp.float32 else 0.25
    check_language_model(model(name), params(name), length=24, tolerance=tolerance)


# What interprets the kernel takes long to compile, so it goes one way only.
@pytest.mark.heavy
@pytest.mark.parametrize(("name", "rule", "drafter"), [*WAYS, ("paged", "coupled", "model")])
def test_a_drafter_changes_no_token(name, rule, drafter):
    """Plain decoding with the same kernel, for rounding is its own; a tie may still go either way."""
    keys = jax.random.split(jax.random.key(3), len(LENGTHS))
    temperature = 0.0 if rule == "greedy" else 1.0
    settings = {"rule": rule, "keys": keys, "temperature": temperature, "config": SETTINGS, "max_new_tokens": 30}
    pair = pairs(name, drafter)
    got = answers(pair, PROMPTS, LENGTHS, batch=3, **settings)
    wanted = answers(Pair(*pair[:2], None, None), PROMPTS, LENGTHS, batch=3, **settings)
    found = equality(
        pair,
        PROMPTS,
        LENGTHS,
        got,
        wanted,
        keys=keys if rule == "coupled" else None,
        temperature=temperature,
        width=K + 1,
    )
    assert found.holds, (found.differences, found.endings)
    assert found.tokens >= 60, "ties hid the rest"
    assert 0 < found.accepted < found.drafted


@pytest.mark.heavy
@pytest.mark.parametrize("rule", ["block", "token"])
def test_next_tokens_come_as_often_as_they_should(rule):
    """With the kernel that is not interpreted, for this takes thousands of rows."""
    found = next_tokens(
        pairs("xla", "model"),
        PROMPTS[0].tolist(),
        key=jax.random.key(4),
        sampling=SamplingParams(temperature=0.8),
        config=GenerateConfig(capacity=16, draft_length=K, rule=rule, prefill_chunk=4),
        draws=4000,
        batch=1000,
    )
    assert found.holds, found.p_value
    assert 0 < found.accepted < found.drafted

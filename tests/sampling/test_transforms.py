"""The transforms against a reference that sorts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import SamplingParams
from specdec_jax.sampling import probabilities
from specdec_jax.testing.reference import distribution

V = 12
INF = np.inf
fast = jax.jit(probabilities)


def check(logits, rows, dtype=jnp.float32, atol=2e-6):
    """``logits`` [V] or [B, V] under each of the ``rows``, dicts of sampling values, in one batch."""
    logits = jnp.broadcast_to(jnp.asarray(logits, dtype), (len(rows), np.shape(logits)[-1]))
    fields = SamplingParams._field_defaults
    sampling = SamplingParams(**{name: jnp.array([row.get(name, fields[name]) for row in rows]) for name in fields})
    got = fast(logits[:, None], sampling)
    assert got.dtype == jnp.float32
    for row, given, values in zip(np.asarray(got[:, 0]), np.asarray(logits.astype(jnp.float32)), rows, strict=True):
        wanted = distribution(given, **values)
        np.testing.assert_array_equal(row > 0, wanted > 1e-38, err_msg=f"support of {values} on {given}")
        np.testing.assert_allclose(row, wanted, atol=atol, err_msg=f"{values} on {given}")


EACH_ALONE = [
    {},
    *({"temperature": t} for t in (0.0, 0.1, 0.7, 1.0, 2.0, 100.0)),
    *({"top_k": k} for k in (1, 2, 3, 5, V - 1, V, V + 1, 10_000)),
    *({"top_p": p} for p in (1e-6, 0.11, 0.31, 0.52, 0.9, 0.99999)),
    *({"min_p": m} for m in (1e-6, 0.012, 0.13, 0.47, 1.0)),
]
COMBINED = [
    {"temperature": t, "top_k": k, "top_p": p, "min_p": m}
    for t in (0.0, 0.6, 1.7)
    for k in (0, 1, 4)
    for p in (0.13, 0.77, 1.0)
    for m in (0.0, 0.083)
]


@pytest.mark.parametrize(
    "logits",
    [
        np.array([0.3, -1.1, 2.2, 0.9, -0.4, 1.7, -2.6, 0.05, 1.2, -0.9, 0.6, -1.9]),
        np.array([1, 1, 0, 2, 2, 0, -1, 1, 2, 0, -1, 0.0]),  # ties at every cut
        np.zeros(V),
        np.array([0.5, -INF, 1.5, -INF, 1.5, 0.25, -INF, -INF, -0.75, -INF, -INF, 0.5]),
        np.array([-INF] * 5 + [3.0] + [-INF] * 6),  # one token alone
        np.array([5e4, 5e4 - 1, 0, -5e4, 5e4 - 2, 1, 2, 3, -1, 5e4 - 3, -INF, 5e4 - 1]),
    ],
    ids=["plain", "ties", "all equal", "forbidden tokens", "one token", "large"],
)
def test_every_transform_alone_and_with_others(logits):
    check(logits, EACH_ALONE + COMBINED)


def test_random_logits_and_values():
    rng = np.random.default_rng(0)
    logits, rows = [], []
    while len(rows) < 400:
        row = np.round(2 * rng.normal(size=V), 1)  # rounded, so that ties are common
        row[rng.random(V) < 0.1] = -INF
        row[0] = 0.0
        values = {
            "temperature": float(rng.choice([0, 0.3, 1, 3])),
            "top_k": int(rng.choice([0, 1, 3, 6, 20])),
            "top_p": float(rng.choice([1, rng.uniform(0.01, 1)])),
            "min_p": float(rng.choice([0, rng.uniform(0, 1)])),
        }
        # A cut that falls on the last bit of a sum is the one thing on which float32 and float64 may disagree.
        moved = [
            values | {"top_p": values["top_p"] * s, "min_p": values["min_p"] * t}
            for s, t in ((1 - 1e-5, 1 + 1e-5), (1 - 1e-5, 1 - 1e-5))
        ]
        moved += [values | {"min_p": min(values["min_p"] * (1 + 1e-5), 1.0)}]
        supports = {tuple(distribution(row, **v) > 0) for v in [values, *moved]}
        if values["top_p"] == 1 or len(supports) == 1:
            logits.append(row)
            rows.append(values)
    check(np.array(logits), rows)


def test_wide_vocabulary():
    logits = np.random.default_rng(1).normal(size=5000) * 3
    check(
        logits, [{}, {"top_k": 50}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 200, "top_p": 0.8, "temperature": 0.7}]
    )


def test_bfloat16_logits():
    logits = np.random.default_rng(2).normal(size=V) * 2
    check(logits, [{}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.2}, {"temperature": 0.0}], dtype=jnp.bfloat16)


def test_extreme_temperatures():
    logits = np.array([1.0, 1.0, 0.999, -3.0, -INF])
    check(logits, [{"temperature": 1e-6}, {"temperature": 1e-30}, {"temperature": 1e30}])


def test_greedy_takes_the_lowest_of_equals_and_no_cut_matters():
    logits = np.array([0.0, 2.0, 1.0, 2.0])
    rows = [{"temperature": 0.0}, {"temperature": 0.0, "top_k": 2, "top_p": 0.1, "min_p": 1.0}]
    check(logits, rows)
    assert np.argmax(distribution(logits, temperature=0.0)) == 1
    for temperature in (1e-50, 1e-40):  # devices may take the second for 0 too, or not
        found = fast(jnp.asarray(logits, jnp.float32)[None, None], SamplingParams(temperature=temperature))
        np.testing.assert_array_equal(found[0, 0], [0, 1, 0, 0])


def test_places_of_a_row_are_independent():
    logits = jnp.asarray(np.random.default_rng(3).normal(size=(3, 4, V)), jnp.float32)
    sampling = SamplingParams(jnp.array([0.0, 0.8, 1.0]), jnp.array([0, 3, 0]), jnp.array([1.0, 1.0, 0.7]), 0.05)
    together = fast(logits, sampling)
    for place in range(4):
        np.testing.assert_allclose(fast(logits[:, place : place + 1], sampling)[:, 0], together[:, place], rtol=1e-6)
    np.testing.assert_allclose(together.sum(-1), 1, atol=1e-6)

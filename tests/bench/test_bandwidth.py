"""Bytes that rounds must read, by hand, and the rate at which memory gives them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.bench import Answered, bandwidth, bytes_read, roofline, useless, weight_bytes
from specdec_jax.drafters import draft_model
from specdec_jax.state import Generation, Logprobs, Stats
from specdec_jax.testing import markov_model

V = 5
TARGET = markov_model(V)  # its cache holds the tokens themselves: four bytes each


def answered(prompts: list[list[int]], lengths: list[int], rounds: list[int], drafted: list[int]) -> Answered:
    made, taken = (jnp.asarray(count, jnp.int32) for count in (drafted, rounds))
    places = jnp.zeros((len(prompts), 1), jnp.int32)
    tokens, logprobs = jnp.zeros((len(prompts), 8), jnp.int32), jnp.zeros((len(prompts), 8))
    new = jnp.asarray(lengths, jnp.int32)
    stats = Stats(taken, made, made, places, places)
    return Answered(prompts, Generation(tokens, new, new, Logprobs(logprobs, logprobs), stats))


def test_an_embedding_beside_a_head_is_looked_up():
    weight = jnp.zeros((4, 3))
    assert weight_bytes({"embedding": {"weight": weight}, "layers": {0: weight}}) == 2 * 48
    assert weight_bytes({"embedding": {"weight": weight}, "layers": {0: weight}, "head": weight}) == 2 * 48
    assert weight_bytes({"model": {"embedding": weight, "head": weight}, "place": jnp.zeros(2, jnp.int32)}) == 48 + 8
    assert weight_bytes(weight) == 48
    assert weight_bytes(None) == 0


def test_bytes_of_rounds():
    """Two rows: the pass goes on for the longer, the cache is read for both."""
    params, draft = jnp.zeros((V, V)), jnp.zeros((V, 2 * V))
    one = answered([[1, 2, 3], [1]], lengths=[6, 2], rounds=[4, 2], drafted=[5, 7])
    cache = 4 * (4 * (3 + 3) + 2 * (1 + 1))
    assert bytes_read([one], TARGET, params, None, None) == 4 * 100 + cache
    shallow = draft_model(TARGET)._replace(reads=0.5)
    assert bytes_read([one, one], TARGET, params, shallow, draft) == 2 * (4 * 100 + 7 * 100 + cache)


def test_bandwidth_is_bytes_over_the_median(monkeypatch):
    read = []

    def timed(runs, repeats):
        read.append(runs["sum"]())
        return {"sum": [1.0, 0.5, 4.0][:repeats]}

    monkeypatch.setattr(roofline, "in_turns", timed)
    assert bandwidth(3 * 4096, repeats=3) == 3 * 4096 / 1.0
    np.testing.assert_array_equal(read[0], np.full(3, 1024.0))


def test_useless_parameters_look_like_the_old_ones():
    weight = 3 + 2 * jax.random.normal(jax.random.key(1), (64, 64))
    params = {"weight": weight, "rounded": jnp.rint(9 * weight).astype(jnp.int8), "place": jnp.arange(4)}
    found = useless(params, jax.random.key(0))
    assert found["weight"].shape == (64, 64)
    assert found["weight"].mean() == pytest.approx(3.0, abs=0.2)
    assert found["weight"].std() == pytest.approx(2.0, abs=0.2)
    assert abs(np.corrcoef(found["weight"].ravel(), params["weight"].ravel())[0, 1]) < 0.1
    assert found["rounded"].dtype == jnp.int8
    assert found["rounded"].std() == pytest.approx(18.0, abs=2)
    assert abs(np.corrcoef(found["rounded"].ravel(), params["rounded"].ravel())[0, 1]) < 0.1
    assert (found["place"] == params["place"]).all()

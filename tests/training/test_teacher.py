"""What the teacher says is what the model says, and is computed once."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training.packing import pack
from specdec_jax.training.teacher import Teacher, as_teacher, cache_key, cached_outputs, head_rows, weights_digest


@pytest.fixture(scope="module")
def source(tiny_target):
    return as_teacher(tiny_target, (0, 2))


@pytest.fixture(scope="module")
def packed(samples):
    return pack(samples, 20)


def test_outputs_are_the_models(source, packed, tiny_target, tmp_path):
    """Texts side by side in a row get the logits and the states that each gets alone."""
    outputs = cached_outputs(tmp_path, source, packed, dtype="float32", batch=4)
    apply = jax.jit(tiny_target.variant(hidden_layers=(0, 2)).apply)
    for row, segment in ((0, 1), (0, 2), (3, 1)):
        place = np.flatnonzero(packed.segments[row] == segment)
        fed = np.zeros((1, 20), np.int32)
        fed[0, : len(place)] = packed.tokens[row, place]
        logits, hidden, _ = apply(
            tiny_target.params, jnp.asarray(fed), tiny_target.model.init_cache(1, 24), jnp.zeros(1, jnp.int32)
        )
        said = outputs.features[row, place] @ np.asarray(head_rows(tiny_target.params)).T
        np.testing.assert_allclose(said, logits[0, : len(place)], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(outputs.hidden[row, place], hidden[0, : len(place)], rtol=1e-4, atol=1e-4)


def test_it_goes_on_where_it_stopped(source, packed, tmp_path):
    """Rows on the disk are not computed again, and the files of both are the same."""
    calls = []

    class StopHereError(Exception):
        pass

    def stop(done, rows):
        calls.append(done)
        if done == 6:
            raise StopHereError

    with pytest.raises(StopHereError):
        cached_outputs(tmp_path / "a", source, packed, batch=3, progress=stop)
    again: list[int] = []
    got = cached_outputs(tmp_path / "a", source, packed, batch=3, progress=lambda done, rows: again.append(done))
    assert calls == [3, 6]
    assert again[0] == 9
    want = cached_outputs(tmp_path / "b", source, packed, batch=3)
    for name, one, other in zip(got._fields, got, want, strict=True):
        assert one.dtype == (np.float32 if name == "log_total" else np.float16)
        np.testing.assert_array_equal(one, other)
    untouched: list[int] = []
    cached_outputs(tmp_path / "a", source, packed, batch=3, progress=lambda done, rows: untouched.append(done))
    assert untouched == []


def test_the_key_covers_what_the_outputs_depend_on(source, packed, samples, tiny_target):
    key = cache_key(source, packed, "float16")
    assert key == cache_key(as_teacher(tiny_target, (0, 2)), pack(samples, 20), "float16")
    params = jax.tree.map(lambda leaf: leaf, tiny_target.params)
    params["norm"] = {"weight": params["norm"]["weight"].at[0].add(1e-6)}
    others = {
        "dtype": cache_key(source, packed, "float32"),
        "layers": cache_key(as_teacher(tiny_target, (0, 1)), packed, "float16"),
        "one weight": cache_key(as_teacher(tiny_target._replace(params=params), (0, 2)), packed, "float16"),
        "texts": cache_key(source, pack(samples[1:], 20), "float16"),
        "packing": cache_key(source, pack(samples, 24), "float16"),
        "tokens": cache_key(source._replace(known=np.arange(len(source.known)) < 20), packed, "float16"),
    }
    assert len({key, *others.values()}) == 7, others
    unlearned = packed._replace(learned=np.zeros_like(packed.learned))
    assert cache_key(source, unlearned, "float16") == key, "the outputs do not depend on what is learned"


def test_weights_have_one_digest_wherever_they_are_loaded(tiny_target):
    """A device may read them in another format and hold their layers in one stack."""
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tiny_target.params)
    layers = params["layers"]
    stacked = {**params, "layers": jax.tree.map(lambda *each: jnp.stack(each), *(layers[i] for i in sorted(layers)))}
    want = weights_digest(tiny_target.params)
    assert weights_digest(params) == weights_digest(stacked) == want
    swapped = {**params, "layers": {**layers, 0: layers[1], 1: layers[0]}}
    louder = {**params, "norm": {"weight": params["norm"]["weight"].at[0].mul(1.01)}}
    assert len({want, weights_digest(swapped), weights_digest(louder)}) == 3


def test_states_that_float16_cannot_hold(packed, tiny_target, tmp_path):
    params = jax.tree.map(lambda leaf: leaf, tiny_target.params)
    params["embedding"] = {"weight": 1e6 * params["embedding"]["weight"]}
    large = as_teacher(tiny_target._replace(params=params), (0,))
    with pytest.raises(FloatingPointError, match=r"rows 0 to 3 are not finite in float16; .* keep them in float32"):
        cached_outputs(tmp_path, large, packed, batch=4)
    outputs = cached_outputs(tmp_path, large, packed, dtype="float32", batch=4)
    assert np.isfinite(outputs.hidden).all()


def test_a_full_disk_is_an_error_before_the_work(source, packed, tmp_path, monkeypatch):
    """A file mapped into memory that finds the disk full would kill the process."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(Teacher, "read", lambda *_: pytest.fail("computed something"))
    advice = r"No space left on device; .* room for \d+ MB of the teacher's outputs, so make room .*features.npy"
    with pytest.raises(OSError, match=advice):
        cached_outputs(tmp_path, source, packed)
    assert not list(tmp_path.rglob("*.part"))


def test_a_disk_that_is_full_between_rows(source, packed, tmp_path, monkeypatch):
    """What was computed is gone on from."""
    whole = Path.write_text

    def full(self, text, *how, **named):
        if '"rows": 6' in text:
            self.touch()
            raise OSError(28, "No space left on device")
        return whole(self, text, *how, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match=r"No space left on device; .* so make room and start .*done.json"):
            cached_outputs(tmp_path, source, packed, batch=3)
    assert not list(tmp_path.rglob("*.part"))
    done: list[int] = []
    cached_outputs(tmp_path, source, packed, batch=3, progress=lambda rows, of: done.append(rows))
    assert done[0] == 6, "the first three are there"

"""Fingerprints: equal for equal parameters only, however they are sharded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.batch.fingerprint import digest_of, fingerprint, outline, sampled

PARAMS = {
    "a": jnp.arange(12, dtype=jnp.float32).reshape(3, 4),
    "b": [jnp.ones(5, jnp.bfloat16), np.asarray([1, -2], np.int8)],
}


def changed(**changes):
    return fingerprint(PARAMS | changes)


def test_equal_parameters_have_one_fingerprint():
    assert fingerprint(PARAMS) == changed(a=np.arange(12, dtype=np.float32).reshape(3, 4))
    assert fingerprint(None) == fingerprint({})


@pytest.mark.parametrize(
    "other",
    [
        PARAMS["a"].at[2, 3].set(11.000001),
        PARAMS["a"].at[0, 0].set(-0.0),
        PARAMS["a"][::-1],
        PARAMS["a"][:, ::-1],
        PARAMS["a"].reshape(4, 3),
        PARAMS["a"].astype(jnp.bfloat16),
    ],
    ids=["last bit", "sign of zero", "rows", "columns", "shape", "dtype"],
)
def test_any_change_shows(other):
    assert changed(a=other) != fingerprint(PARAMS)


def test_a_file_is_known_by_its_contents():
    assert digest_of([b"ab", b"c"]) == digest_of([b"abc"]) != digest_of([b"abd"])


def test_hosts_see_that_the_files_of_a_model_differ(tmp_path):
    for name in ("one", "copy", "merged", "shorter"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "README.md").write_text(name)  # says nothing of the model
        (tmp_path / name / "sub/model.safetensors").write_bytes(bytes(3 * 2**20))
    (tmp_path / "merged/sub/model.safetensors").write_bytes(bytes(2 * 2**20) + b"\1" * 2**20)
    (tmp_path / "shorter/sub/model.safetensors").write_bytes(bytes(3 * 2**20 - 1))
    one, copy, merged, shorter = (sampled(tmp_path / name) for name in ("one", "copy", "merged", "shorter"))
    assert one == copy
    assert len({one, merged, shorter}) == 3
    assert sampled(tmp_path / "one/sub/model.safetensors") == sampled(tmp_path / "copy/sub/model.safetensors")


def test_an_outline_tells_shapes_and_places_but_no_values():
    mesh = jax.make_mesh((1,), ("tensor",), axis_types=(jax.sharding.AxisType.Auto,))
    one, other, cut = jnp.zeros((2, 3)), jnp.ones((2, 3)), jnp.zeros((3, 2))
    placed = jax.device_put(one, jax.NamedSharding(mesh, jax.P("tensor")))
    assert outline({"a": one}) == outline({"a": other})
    assert len({outline(tree) for tree in ({"a": one}, {"b": one}, {"a": cut}, {"a": placed}, None)}) == 5

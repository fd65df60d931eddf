"""Fingerprints: equal for equal parameters only, however they are sharded."""

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.batch.fingerprint import digest_of, fingerprint

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

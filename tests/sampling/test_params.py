"""SamplingParams: ranges and shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import SamplingParams


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.5}, r"temperature is -0\.5; expected temperature from 0"),
        ({"temperature": np.nan}, r"temperature is nan; expected temperature from 0 to 3\.4e\+38"),
        ({"temperature": np.inf}, r"temperature is inf; expected temperature from 0 to 3\.4e\+38"),
        ({"temperature": jnp.array([1.0, -2.0])}, r"temperature is -2\.0 in row 1; expected"),
        ({"temperature": 1e39}, r"temperature is 1e\+39; expected"),
        ({"temperature": "x"}, r"temperature is 'x'; expected a number"),
        ({"temperature": True}, r"temperature is True; expected a number"),
        ({"top_k": 2.5}, r"top_k is 2\.5; expected an integer"),
        ({"top_k": 2**31}, r"top_k is 2147483648; expected top_k from 0 \(all\) to 2147483647"),
        ({"top_p": [[0.5], [0.5, 0.5]]}, r"top_p is no array .*; expected a number or one a row"),
        ({"top_k": -1}, r"top_k is -1; expected top_k from 0"),
        ({"top_p": 0.0}, r"top_p is 0\.0; expected top_p in \(0, 1\]"),
        ({"top_p": 1e-50}, r"top_p is 1e-50; expected top_p in \(0, 1\], no less than 1\.18e-38"),
        ({"top_p": 1e-40}, r"top_p is 1e-40; expected top_p in \(0, 1\], no less than 1\.18e-38"),
        ({"top_p": np.float16(0)}, r"top_p is 0\.0; expected top_p in \(0, 1\]"),
        ({"top_p": 1.5}, r"top_p is 1\.5; expected top_p in \(0, 1\]"),
        ({"min_p": -0.1}, r"min_p is -0\.1; expected min_p in \[0, 1\]"),
        ({"min_p": 2.0}, r"min_p is 2\.0; expected min_p in \[0, 1\]"),
        ({"min_p": jnp.array([0.0, 0.5, np.nan])}, r"min_p is nan in row 2; expected"),
    ],
)
def test_values_out_of_range(values, message):
    with pytest.raises(ValueError, match=message):
        SamplingParams(**values).check()


def test_values_at_the_ends_of_their_ranges():
    SamplingParams(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0).check()
    SamplingParams(temperature=jnp.array([0.0, 9.0]), top_k=10**6, top_p=1e-9, min_p=1.0).check()
    SamplingParams(temperature=1e-50, top_p=float(np.finfo(np.float32).tiny), min_p=1e-50).check()


def test_traced_values_pass():
    jax.jit(lambda t: SamplingParams(temperature=t).check())(jnp.float32(-1))


@pytest.mark.parametrize("name", SamplingParams._fields)
def test_one_value_a_row_or_one_for_all(name):
    assert getattr(SamplingParams(**{name: jnp.ones(3, jnp.float32)}).broadcast(3), name).shape == (3,)
    assert np.shape(SamplingParams().broadcast(3).top_k) == (3,)
    with pytest.raises(ValueError, match=rf"SamplingParams.{name} has shape \(2,\); expected a scalar .* \(3,\)"):
        SamplingParams(**{name: jnp.ones(2, jnp.float32)}).broadcast(3)

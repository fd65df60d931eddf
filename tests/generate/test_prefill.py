"""Prompts are read in chunks of any size, up to the last slot of the cache."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once

from specdec_jax.lm import prefill
from specdec_jax.testing import history_model, random_logits

V, SLOTS = 16, 24
MODEL, PARAMS = history_model(V), random_logits(0, 97, V)
TOKENS = jax.random.randint(jax.random.key(0), (3, SLOTS + 1), 0, V)


@pytest.mark.parametrize("chunk", at_once([1, 5, 7, 16, 24, 100], [5, 100]))
@pytest.mark.parametrize("lengths", [(25, 1, 9), (24, 2, 3), (20, 6, 7), (1, 1, 1)])
def test_all_but_the_last_token_is_read(chunk, lengths):
    def see(seen, start, hidden):
        return jax.lax.dynamic_update_slice(seen, hidden[:, :, 0], (0, start))

    cache, seen = prefill(
        MODEL,
        PARAMS,
        TOKENS,
        jnp.array(lengths),
        MODEL.init_cache(3, SLOTS),
        slots=SLOTS,
        chunk=chunk,
        see=see,
        seen=jnp.zeros((3, SLOTS), jnp.uint32),
    )
    _, hidden, whole = MODEL.apply(PARAMS, TOKENS[:, :SLOTS], MODEL.init_cache(3, SLOTS), jnp.zeros(3, jnp.int32))
    assert hidden is not None
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(cache[row, : length - 1], whole[row, : length - 1])
        np.testing.assert_array_equal(seen[row, : length - 1], hidden[row, : length - 1, 0])

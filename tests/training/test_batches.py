"""What is in a batch: rows of fixed text, and the share of fresh ones."""

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training.batches import Corpus, fixed, in_order, mixed
from specdec_jax.training.packing import Packed
from specdec_jax.training.teacher import Outputs

OLD, POOL = 7, 5


def corpus(ids) -> Corpus:
    """Rows that can be told apart by their tokens, with features to match."""
    tokens = np.repeat(np.asarray(ids, np.int32)[:, None], 3, axis=1)
    shape = tokens.shape
    packed = Packed(tokens, tokens * 0, tokens * 0 + 1, np.ones(shape, bool))
    outputs = Outputs(tokens[..., None].astype(np.float32), np.zeros((*shape, 0, 1)), np.zeros(shape, np.float32))
    return Corpus(packed, outputs)


def rows(batch) -> list[int]:
    np.testing.assert_array_equal(batch.features[..., 0], batch.tokens)
    return batch.tokens[:, 0].tolist()


@pytest.mark.parametrize(("share", "new"), [(0.25, 1), (0.5, 2), (1.0, 4)])
def test_a_share_of_each_batch_is_fresh(share, new):
    """Of texts sampled at the start of the phase from the student as it is then."""
    asked = []

    def fresh(first, params):
        asked.append((first, float(params)))
        return corpus(1000 * (1 + first) + np.arange(POOL))

    phases = mixed(corpus(np.arange(OLD)), fresh, share, batch=4, seed=1)
    for first, params in ((0, 0.5), (10, 1.5)):
        phase, seen = phases(first, jnp.float32(params)), []
        for step in range(first, first + 10):
            found = rows(phase(step))
            assert [row >= 1000 for row in found] == [True] * new + [False] * (4 - new)
            seen += found
            assert rows(phase(step)) == found, "the same when it is asked for again"
        pool = [row for row in seen if row >= 1000]
        assert {*pool} == {*(1000 * (1 + first) + np.arange(POOL)).tolist()}, "all of this phase's, and no other's"
        assert [row for row in seen if row < 1000] == [
            row for step in range(first, first + 10) for row in _fixed(step, 4 - new)
        ]
    assert asked == [(0, 0.5), (10, 1.5)], "once a phase"


def _fixed(step: int, count: int) -> list[int]:
    return rows(fixed(corpus(np.arange(OLD)), count, 1)(0, None)(step)) if count else []


def test_shares_that_are_none():
    for share in (0.0, 1.5):
        with pytest.raises(
            ValueError, match=rf"the share of fresh rows is {share}; expected more than 0 and at most 1"
        ):
            mixed(corpus([1]), lambda first, params: corpus([2]), share, batch=2, seed=0)


def test_every_row_counts_once_in_order():
    found = list(in_order(corpus(np.arange(OLD)), 3)())
    assert [batch.tokens.shape for batch in found] == [(3, 3)] * 3
    counted = [row for batch in found for row, counts in zip(rows(batch), batch.learned.any(1), strict=True) if counts]
    assert counted == list(range(OLD))

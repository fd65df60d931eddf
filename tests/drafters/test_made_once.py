"""A drafter is a static argument: made twice of the same parts, it must not have a program compiled twice."""

import pytest

from specdec_jax import draft_model, early_exit, feature_head, ngram
from specdec_jax.drafters import entropy_above, likeliest_below
from specdec_jax.testing import history_head, history_model

MODEL, HEAD = history_model(8), history_head(8)


@pytest.mark.parametrize(
    "make",
    [
        ngram,
        lambda: ngram(3),
        lambda: draft_model(MODEL),
        lambda: draft_model(MODEL, stop=entropy_above(1.5)),
        lambda: early_exit(MODEL, reads=0.5, stop=likeliest_below(0.3)),
        lambda: feature_head(HEAD),
    ],
    ids=["ngram", "shorter", "draft_model", "stopping", "early_exit", "feature_head"],
)
def test_the_same_parts_make_the_same_drafter(make):
    assert make() is make()

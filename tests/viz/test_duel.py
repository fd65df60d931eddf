"""Two rules on the same rounds: each is what the reference says, and the block rule keeps more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.testing import closed_forms, constant_tree, reference
from specdec_jax.viz.duel import constant_rounds, duel

K, ROUNDS = 3, 400
P, Q = np.array([0.5, 0.3, 0.2], np.float32), np.array([0.2, 0.5, 0.3], np.float32)


@pytest.fixture(scope="module")
def found():
    return duel(*constant_rounds(jnp.asarray(P), jnp.asarray(Q), K, ROUNDS, jax.random.key(5)))


def test_both_sides_keep_what_the_references_keep(found):
    p, q = np.tile(P, (K + 1, 1)), np.tile(Q, (K, 1))
    for guesses, draws, singly, jointly in zip(
        found.tokens, found.draws, found.token.kept, found.block.kept, strict=True
    ):
        assert singly == reference.token_rule(guesses, q, p, draws)[0]
        assert jointly == reference.block_rule(guesses, q, p, draws)[0]


def test_for_no_guesses_does_the_block_rule_keep_less_often(found):
    assert (found.block.at_least >= found.token.at_least - 1e-6).all()
    assert found.block.at_least.sum() > 1.05 * found.token.at_least.sum()


def test_the_averages_are_the_closed_forms(found):
    p, q = constant_tree(P, K), constant_tree(Q, K)
    singly, jointly = closed_forms.token_rule_accepted(p, q), closed_forms.block_rule_accepted(p, q)
    assert found.token.at_least.sum(axis=1).mean() == pytest.approx(singly, rel=0.05)
    assert found.block.at_least.sum(axis=1).mean() == pytest.approx(jointly, rel=0.05)


def test_the_telling_round_is_the_first_in_which_the_block_rule_kept_more(found):
    first = found.telling()
    assert found.block.kept[first] > found.token.kept[first]
    assert (found.block.kept[:first] <= found.token.kept[:first]).all()

"""Draft lengths that a controller chooses and verify passes of several widths change no token that must not change."""

import numpy as np
import pytest
from marks import at_once
from toys import COSTS, PAIRS, PARAMS, ROWS, TARGET, WEAK, WIDTHS, K, greedy_walk, guesser, run

from specdec_jax import CONTROLLERS, constant, draft_model
from specdec_jax.drafters import entropy_above

VARYING = [name for name in CONTROLLERS if name != "constant"]
"""The constant one is what the other tests take."""
OWN_TEXTS = [pair for pair in PAIRS if pair[0] in ("greedy", "coupled")]
"""The rules whose text no controller may change. (That it changes no law, test_law_controlled.py shows.)"""


@pytest.fixture(scope="module")
def texts():
    """Of the target and the key alone."""
    return {"greedy": [greedy_walk(row, 20) for row in range(ROWS)], "coupled": run("coupled").rows}


@pytest.mark.parametrize("controller", at_once(VARYING, ["adaptive"]))
@pytest.mark.parametrize(("rule", "name"), at_once(OWN_TEXTS, [("greedy", "ngram"), ("coupled", "draft_model")]))
def test_controlled_output_is_the_targets_own(rule, name, controller, texts):
    drafter, chosen = guesser(name), CONTROLLERS[controller]()
    for drafter_params in (drafter.same, drafter.weak):
        out = run(rule, drafter, drafter_params, controller=chosen, costs=COSTS, verify_widths=WIDTHS)
        assert out.rows == texts[rule]


def test_rounds_without_guesses_are_plain_decoding():
    plain, none = run("block"), run("block", guesser("draft_model"), controller=constant(0))
    assert none.rows == plain.rows
    np.testing.assert_array_equal(none.raw.stats.rounds, plain.raw.stats.rounds)
    assert not none.raw.stats.drafted.any()


@pytest.mark.heavy
def test_a_constant_length_is_that_of_the_config():
    fewer = run("block", guesser("draft_model"), controller=constant(2))
    assert fewer.rows == run("block", guesser("draft_model"), at_most=2).rows
    assert (fewer.raw.stats.drafted_at[:, :2] > 0).all()


def test_the_adaptive_length_follows_what_is_kept():
    """A drafter that is always right makes all guesses; at costs of the toys, one that errs often makes fewer."""
    adaptive = CONTROLLERS["adaptive"]()
    right, wrong = (
        run("greedy", guesser("draft_model"), params, controller=adaptive, costs=COSTS, verify_widths=WIDTHS).raw.stats
        for params in (PARAMS, np.roll(PARAMS, 1, axis=1))
    )
    assert (right.drafted == K * right.rounds).all()
    assert (wrong.drafted < K * wrong.rounds).all()
    assert (wrong.rounds > 3 * right.rounds).all()


def test_early_stops_change_no_token(texts):
    drafter = guesser("draft_model")._replace(drafter=draft_model(TARGET, stop=entropy_above(1.5)))
    out = run("coupled", drafter, WEAK)
    assert out.rows == texts["coupled"]
    assert 0 < out.raw.stats.drafted.sum() < K * out.raw.stats.rounds.sum()


def test_widths_change_no_token():
    """One pass for all rounds, or one for each number of guesses."""
    drafter = guesser("draft_model")
    for at_most in (0, 1, 2, 3):
        every, widest = (run("block", drafter, at_most=at_most, verify_widths=w).rows for w in ((2, 4), (4,)))
        assert every == widest

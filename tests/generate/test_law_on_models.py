"""The law of whole generations, see test_law.py, with drafters that run models: programs that take long to compile."""

import pytest
from laws import BROKEN_DRAFT_PARAMS, DRAFT, ON_MODELS, RECIPES, SAMPLED, check
from marks import at_once

CASES = [(rule, name) for rule in SAMPLED for name in ON_MODELS]


@pytest.mark.parametrize(("rule", "name"), at_once(CASES, [("block", "draft_model")]))
def test_every_sequence_comes_as_often_as_it_should(rule, name):
    check(rule, *RECIPES[name])


@pytest.mark.heavy
def test_drafter_that_breaks_now_and_then_changes_no_probability():
    """After token 2 its logits are NaN: guesses end there, which may depend on what was drawn before, not after."""
    check("block", DRAFT, BROKEN_DRAFT_PARAMS)

"""Whole generations by chi-square: every sequence comes as often as the target alone would draw it."""

import pytest
from laws import ON_MODELS, RECIPES, SAMPLED, check
from marks import at_once

from specdec_jax import DRAFTERS

CASES = [(rule, name) for rule in SAMPLED for name in RECIPES if name not in ON_MODELS]


def test_every_drafter_has_a_recipe():
    assert DRAFTERS.keys() <= RECIPES.keys(), "add the new drafter to RECIPES"


@pytest.mark.parametrize(("rule", "name"), at_once(CASES, [("token", "none"), ("block", "ngram")]))
def test_every_sequence_comes_as_often_as_it_should(rule, name):
    check(rule, *RECIPES[name])

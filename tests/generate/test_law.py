"""Whole generations by chi-square: every sequence comes as often as the target alone would draw it."""

import pytest
from laws import ON_MODELS, RECIPES, check, each_rule

from specdec_jax import DRAFTERS


def test_every_drafter_has_a_recipe():
    assert DRAFTERS.keys() <= RECIPES.keys(), "add the new drafter to RECIPES"


@each_rule
@pytest.mark.parametrize("name", [name for name in RECIPES if name not in ON_MODELS])
def test_every_sequence_comes_as_often_as_it_should(rule, name):
    check(rule, *RECIPES[name])

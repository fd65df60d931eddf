"""The laws of the rules by enumeration, and the expected numbers of accepted guesses against closed forms."""

import numpy as np
import pytest
from adversaries import opponents, targets
from marks import at_once

from specdec_jax.testing import (
    check_guessed_laws,
    check_law,
    check_strict,
    closed_forms,
    constant_tree,
    joint,
    rule_law,
)
from specdec_jax.verify import RULES, block, token

ENUMERATED = {"token": token, "block": block}
DRAW_NOTHING = {"greedy", "coupled"}  # no acceptance draws to enumerate: see test_equal_rules.py

SIZES = [(V, K) for V in (2, 3, 4) for K in (1, 2, 3)]
each_rule = pytest.mark.parametrize("rule", ENUMERATED.values(), ids=ENUMERATED)
each_size = pytest.mark.parametrize(("V", "K"), at_once(SIZES, [(2, 1), (2, 3), (3, 2), (4, 3)]))


def test_every_rule_has_a_recipe():
    missing = RULES.keys() - ENUMERATED.keys() - DRAW_NOTHING
    assert not missing, f"no test knows how to enumerate {missing}: add the rule's module to ENUMERATED"


@each_size
@each_rule
def test_committed_tokens_have_the_law_of_p(rule, V, K):
    for name, (p, q) in opponents(V, K).items():
        for length in range(K + 1):
            try:
                check_law(rule, p, q, length)
            except AssertionError as error:
                raise AssertionError(f"{name}, {length} of {K} guesses proposed: {error}") from error


@each_size
@each_rule
def test_guesses_made_without_drawing_keep_the_law(rule, V, K):
    for name, p in targets(V, K).items():
        for length in range(K + 1):
            try:
                check_guessed_laws(rule, p, length)
            except AssertionError as error:
                raise AssertionError(f"{name}, {length} of {K} guesses proposed: {error}") from error


@each_rule
def test_token_of_probability_zero_is_refused_whatever_the_draw(rule):
    check_strict(rule)


@each_size
def test_token_rule_keeps_what_overlap_allows(V, K):
    for name, (p, q) in opponents(V, K).items():
        assert rule_law(token, p, q).accepted == pytest.approx(closed_forms.token_rule_accepted(p, q), abs=1e-6), name


@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_token_rule_commits_a_geometric_series(K):
    p, q = np.array([0.5, 0.3, 0.2], np.float32), np.array([0.2, 0.3, 0.5], np.float32)
    alpha = closed_forms.acceptance_probability(p, q)
    law = rule_law(token, constant_tree(p, K + 1), constant_tree(q, K))
    assert law.accepted + 1 == pytest.approx(closed_forms.token_rule_tokens(alpha, K), abs=1e-6)


@pytest.mark.parametrize(("K", "accepted"), [(1, 2 / 3), (2, 11 / 9), (3, 5 / 3), (4, 166 / 81)])
def test_block_rule_reaches_the_papers_numbers(K, accepted):
    p, q = (1 / 3, 2 / 3), (2 / 3, 1 / 3)
    law = check_law(block, constant_tree(p, K + 1), constant_tree(q, K))
    assert law.accepted == pytest.approx(accepted, abs=1e-6)


@each_size
def test_block_rule_keeps_a_prefix_with_its_own_probability(V, K):
    for name, (p, q) in opponents(V, K).items():
        law = rule_law(block, p, q)
        for i, prefix in enumerate(closed_forms.prefix_probabilities(p, q), start=1):
            # P(at least i kept, x_1..i): the guesses after x_i, which run fastest in at_least, are summed out.
            both = (law.at_least[i - 1] * joint(q).ravel()).reshape(*(V,) * i, -1).sum(-1)
            np.testing.assert_allclose(both, prefix * joint(q[:i]), atol=1e-6, err_msg=name)
        assert law.accepted == pytest.approx(closed_forms.block_rule_accepted(p, q), abs=1e-6), name


@each_size
def test_block_rule_keeps_at_least_what_the_token_rule_keeps(V, K):
    for name, (p, q) in opponents(V, K).items():
        assert rule_law(block, p, q).accepted >= rule_law(token, p, q).accepted - 1e-6, name

"""Rows that must be equal, and the measure of a tie."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once

from specdec_jax import FinishReason, GenerateConfig, draft_model
from specdec_jax.testing import history_model, random_logits
from specdec_jax.testing.equality import Answer, Pair, answers, equality

V = 8
TARGET, PARAMS = history_model(V), random_logits(0, 97, V)
WEAK = (PARAMS + random_logits(1, 97, V, spread=0.7)).astype(np.float32)
PAIR = Pair(TARGET, PARAMS, draft_model(TARGET), WEAK)
PLAIN = Pair(TARGET, PARAMS, None, None)
PROMPTS, LENGTHS = np.array([[1, 0, 2], [3, 3, 0], [4, 0, 0]], np.int32), np.array([3, 2, 1], np.int32)
KEYS = jax.random.split(jax.random.key(3), 3)
CONFIG = GenerateConfig(capacity=24, draft_length=3, prefill_chunk=4)


def rows(pair, rule, batch):
    return answers(
        pair,
        PROMPTS,
        LENGTHS,
        rule=rule,
        keys=KEYS,
        temperature=0.0 if rule == "greedy" else 1.0,
        config=CONFIG,
        max_new_tokens=12,
        batch=batch,
    )


def compare(rule, got, wanted, pair=PLAIN):
    return equality(
        pair,
        PROMPTS,
        LENGTHS,
        got,
        wanted,
        keys=KEYS if rule == "coupled" else None,
        temperature=0.0 if rule == "greedy" else 1.0,
        width=4,
    )


@pytest.mark.parametrize("rule", ["greedy", pytest.param("coupled", marks=pytest.mark.heavy)])
def test_equal_rows(rule):
    wanted = rows(PLAIN, rule, 3)
    for batch in (3, 2):
        found = compare(rule, rows(PAIR, rule, batch), wanted)
        assert found[:4] == (3, 36, [], [])
        assert 0 < found.accepted <= found.drafted
        assert found.holds


@pytest.mark.parametrize("rule", at_once(["greedy", "coupled"], ["greedy"]))
def test_a_token_that_is_another_is_no_tie(rule):
    wanted = rows(PLAIN, rule, 3)
    got = [Answer([*row.tokens], row.finish_reason) for row in wanted]
    got[1].tokens[5] = (got[1].tokens[5] + 1) % V
    found = compare(rule, got, wanted)
    assert not found.holds
    (difference,) = found.differences
    assert (difference.row, difference.place, difference.wanted) == (1, 5, wanted[1].tokens[5])
    assert difference.gap > 0, "the wanted token won"
    assert found.tokens == 24 + 6


def test_what_rounding_turns_over_is_a_tie():
    """A model whose logits depend on the width of a pass, by more than the two likeliest are apart."""
    flat = np.array(PARAMS)
    flat[:, :2] = flat.max() + 1

    def apply(params, tokens, cache, lengths):
        logits, hidden, cache = TARGET.apply(params, tokens, cache, lengths)
        return logits.at[:, :, 1].add(jnp.float32(1e-4 * (tokens.shape[1] - 2))), hidden, cache

    wobbly = Pair(TARGET._replace(apply=apply), flat, None, None)
    wanted, got, cut = ([Answer([token] * size, FinishReason.LENGTH)] * 3 for token, size in ((0, 12), (1, 12), (1, 9)))
    found = compare("greedy", got, wanted, wobbly)
    assert len(found.differences) == 3
    assert found.endings == []
    assert found.holds
    assert not compare("greedy", cut, wanted, wobbly).holds, "a tie hides no answer that was cut off"
    assert all(difference.rounding >= 2.9e-4 for difference in found.differences), "of widths 1 and 4"


@pytest.mark.parametrize("width", [2, 4])
def test_one_shape_that_rounds_otherwise_makes_a_tie(width):
    flat = np.array(PARAMS)
    flat[:, :2] = flat.max() + 1

    def apply(params, tokens, cache, lengths):
        logits, hidden, cache = TARGET.apply(params, tokens, cache, lengths)
        return logits.at[:, :, 1].add(jnp.float32(1e-4 * (tokens.shape[1] == width) - 1e-4)), hidden, cache

    wobbly = Pair(TARGET._replace(apply=apply), flat, None, None)
    wanted, got = ([Answer([token] * 6, FinishReason.LENGTH)] * 3 for token in (0, 1))
    assert compare("greedy", got, wanted, wobbly).holds


@pytest.mark.parametrize(
    ("got", "told"),
    [
        (Answer([5, 6], FinishReason.NAN), r"row 0 ended after 2 tokens \(NAN\) instead of 3 \(LENGTH\)"),
        (Answer([5, 6, 7], FinishReason.CAPACITY), r"row 0 ended after 3 tokens \(CAPACITY\) instead of 3 \(LENGTH\)"),
        (Answer([5, 6, 7, 1], FinishReason.LENGTH), r"row 0 ended after 4 tokens \(LENGTH\) instead of 3 \(LENGTH\)"),
    ],
)
def test_an_answer_that_ends_elsewhere_is_not_the_same(got, told):
    wanted = Answer([5, 6, 7], FinishReason.LENGTH)
    found = compare("greedy", [got, wanted, wanted], [wanted] * 3)
    assert not found.holds
    assert found.differences == []
    (ending,) = found.endings
    assert re.fullmatch(told, str(ending))


def test_nothing_compared_is_not_equal():
    nothing = [Answer([], FinishReason.NAN)] * 3
    assert not compare("greedy", nothing, nothing).holds

"""Costs: their checks, and what is taken where none were measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax import Costs, GenerateConfig, constant, draft_model, early_exit, ngram
from specdec_jax.control import estimate
from specdec_jax.testing import markov_model, random_logits

TARGET, PARAMS = markov_model(5), random_logits(0, 5, 5)
CONFIG = GenerateConfig(capacity=16, draft_length=3)
PROMPT = (np.array([[1, 2]]), np.array([2]))
WIDTHS = (1, 4, 8)
WEIGHTS = {"a": jnp.zeros((10, 100)), "b": np.zeros(1000, np.float32)}
HALF = WEIGHTS["a"]


def test_a_draft_step_is_its_share_of_the_bytes():
    costs = estimate(WEIGHTS, draft_model(TARGET), HALF, 1, WIDTHS)
    assert costs.draft_step == pytest.approx(0.5 * costs.verify[0])
    exit_ = early_exit(TARGET, reads=0.25)
    assert estimate(WEIGHTS, exit_, WEIGHTS, 4, WIDTHS).draft_step == pytest.approx(0.25 * (1.3 + 4 / 12))
    assert estimate(WEIGHTS, ngram(), None, 1, WIDTHS).draft_step == 0
    assert estimate((), ngram(), None, 1, WIDTHS).draft_step == 0


@pytest.mark.parametrize(("device", "share"), [("cpu", 1.0), ("tpu", 0.25)])
def test_weights_in_int8_are_faster_where_they_are_multiplied_as_they_are(device, share, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    rounded = jax.tree.map(lambda leaf: leaf.astype(np.int8), WEIGHTS)
    costs = estimate(WEIGHTS, draft_model(TARGET), rounded, 1, WIDTHS)
    assert costs.draft_step == pytest.approx(share * costs.verify[0])


def test_passes_of_more_tokens_take_longer():
    one, many = (estimate(WEIGHTS, ngram(), None, batch, WIDTHS).verify for batch in (1, 32))
    assert one[2] / one[0] == pytest.approx((1.3 + 8 / 12) / (1 + 1 / 12))
    assert many[2] / many[0] == pytest.approx((1.3 + 256 / 12) / (1.3 + 32 / 12))


def test_a_rounds_cost_is_that_of_the_width_it_needs():
    costs = Costs(0.1, [1.0, 1.5, 2.0])
    found = [costs.of_round(guesses, WIDTHS) for guesses in (0, 1, 3, 4, 7)]
    np.testing.assert_allclose(found, [1.0, 1.6, 1.8, 2.4, 2.7])


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (Costs(-0.1, [1.0, 1.0]), r"costs.draft_step is -0.1; expected finite numbers at least 0"),
        (Costs(0.1, [1.0, 0.0]), r"costs.verify is \[1. 0.\]; expected finite numbers above 0"),
        (Costs(float("nan"), [1.0, 1.0]), r"costs.draft_step is nan; expected finite"),
        (Costs(0.1, [1.0, 1.0, 1.0]), r"costs.verify \(3,\); expected one number, and one .* 2 verify widths \(1, 4\)"),
    ],
)
def test_costs_that_cannot_be_are_refused(costs, message):
    with pytest.raises(ValueError, match=message):
        sd.generate(TARGET, PARAMS, ngram(), None, *PROMPT, key=jax.random.key(0), config=CONFIG, costs=costs)


def test_constant_length_is_no_negative_number():
    with pytest.raises(ValueError, match="length is -1; expected >= 0, or None"):
        constant(-1)


@pytest.mark.parametrize("widths", [(1, 4), (4, 1, 8), (0, 8), (1, 8, 9), (1, 1, 8)])
def test_widths_that_do_not_fit_are_refused(widths):
    with pytest.raises(ValueError, match=r"verify_widths is .*; expected ascending .* the last of them draft_length"):
        GenerateConfig(draft_length=7, verify_widths=widths)


@pytest.mark.parametrize(
    ("draft_length", "widths"),
    [(1, (1, 2)), (4, (1, 5)), (6, (1, 7)), (7, (1, 4, 8)), (8, (1, 4, 9)), (15, (1, 8, 16))],
)
def test_default_widths(draft_length, widths):
    assert GenerateConfig(draft_length=draft_length).widths == widths

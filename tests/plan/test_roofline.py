"""The estimate against sums done by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from small_plans import CONFIG, MESH, ROWS, plan_of

from specdec_jax import theory
from specdec_jax.models import Gemma3Config
from specdec_jax.plan import Chip, estimate, side
from specdec_jax.plan.roofline import forward, message_bytes

CHIP = Chip(flops=1e9, memory=1e9, memory_bandwidth=1e6, link_bandwidth=1e5, largest=(4, 4))


def test_a_pass_by_hand():
    plan = plan_of()
    layer = (4 * (2 + 2) * 8 + 64) * 16 + 3 * 16 * 32  # products of attention, and of the feed-forward layer
    numbers = 3 * (layer // 4 + 2 * 16) + 96 * 16 // 4 + 16  # on one of four devices; norms are whole
    kv = 2 * ROWS * 10 * 3 * 1 * 8  # one of four kv heads
    found = forward(plan.target, plan, CHIP, tokens=4, length=10)
    assert found.memory == pytest.approx(2 * (numbers + kv) / 1e6)
    assert found.products == pytest.approx((2 * numbers * ROWS * 4 + 2 * kv * 2 * 4) / 1e9)
    assert message_bytes(plan.target, plan, tokens=4) == 2 * 3 * ROWS * 4 * 16 * 2
    # A ring of four sends and receives three quarters of it, twice.
    assert found.messages == pytest.approx(2 * 3 * ROWS * 4 * 16 * 2 * 3 / 1e5)
    assert found.seconds == max(found.memory, found.products) + found.messages


def test_layers_with_a_window_read_no_more_than_that():
    config = Gemma3Config(64, 16, 32, 3, 8, 4, 8, 64, sliding_window=4, windowed=(True, True, False))
    windowed, plan = side(config, MESH), plan_of()
    at = [forward(windowed, plan, CHIP, tokens=1, length=length).memory for length in (0, 3, 4, 5, 10)]
    slot = 2 * 2 * ROWS * 8 / 1e6  # seconds for keys and values of one kv head of a layer
    assert [after - at[0] for after in at[1:]] == pytest.approx([9 * slot, 12 * slot, 13 * slot, 18 * slot])


def test_matrices_in_int8_are_read_as_such():
    plan = plan_of()
    found = forward(side(CONFIG, MESH, weights="int8"), plan, CHIP, tokens=1, length=0)
    numbers = 3 * (4 * 6 * 8 + 3 * 32) * 16 // 4 + 96 * 16 // 4
    scales = 3 * (4 * 4 * 8 // 4 + 16 + 2 * 32 // 4 + 16) + 96 // 4  # one a row of a result, which is cut or whole
    assert found.memory == pytest.approx((numbers + 4 * scales + 2 * 7 * 16) / 1e6)


def test_a_whole_drafter_sends_nothing():
    plan = plan_of(whole=True)
    assert plan.draft is not None
    assert message_bytes(plan.draft, plan, tokens=1) == 0
    assert forward(plan.draft, plan, CHIP, tokens=1, length=10).messages == 0


def test_an_estimate_is_tokens_of_a_round_over_its_passes():
    plan = plan_of()
    best = estimate(plan, CHIP, alpha=0.5, length=10)
    passes = [(plan.target, 4), (plan.draft, 2), (plan.draft, 1), (plan.draft, 1)]
    seconds = sum(forward(who, plan, CHIP, tokens=T, length=10).seconds for who, T in passes if who is not None)
    assert best.round_seconds == pytest.approx(seconds)
    assert best.tokens_per_second == pytest.approx(2 * ROWS * theory.expected_tokens(0.5, 3) / seconds)
    assert best.plain_tokens_per_second == pytest.approx(2 * ROWS / best.step_seconds)


def test_without_a_drafter_there_is_one_token_a_pass():
    best = estimate(plan_of(draft=False), CHIP, alpha=0.5, length=10)
    assert best.tokens_per_second == best.plain_tokens_per_second


@pytest.mark.parametrize("width", [88, 96, 104])
def test_a_draft_with_other_padding_is_fitted_as_in_a_job(width):
    small = side(dataclasses.replace(CONFIG, num_layers=1, vocab_size=width), MESH)
    drafter = plan_of()._replace(draft=small).drafter
    assert drafter is not None
    assert drafter.vocab_size == CONFIG.vocab_size


def test_params_are_shapes():
    params = jax.tree.leaves(plan_of().target.params)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) and leaf.dtype == jnp.bfloat16 for leaf in params)

"""The closed forms against check values, against each other and against simulation."""

import numpy as np
import pytest

from specdec_jax.theory import (
    best_draft_length,
    break_even_alpha,
    expected_rounds,
    expected_tokens,
    speedup,
    tokens_of,
)


@pytest.mark.parametrize(
    ("alpha", "tokens", "K", "gain"),
    [(0.6, 2.3056, 4, 1.9213), (0.7, 2.7731, 6, 2.3529), (0.8, 3.3616, 8, 3.0921), (0.9, 4.0951, 13, 4.6741)],
)
def test_check_values(alpha, tokens, K, gain):
    assert expected_tokens(alpha, 4) == pytest.approx(tokens, abs=5e-5)
    best, found = best_draft_length(alpha, 0.05)
    assert (best, found) == (K, pytest.approx(gain, abs=5e-5))
    assert tokens_of([alpha] * 4) == pytest.approx(expected_tokens(alpha, 4))


@pytest.mark.parametrize(("alpha", "c"), [(0.95, 0.01), (0.99, 0.001), (0.6, 0.9), (0.999, 0.01)])
def test_the_best_is_found_however_long_it_is(alpha, c):
    tokens = (1 - alpha ** np.arange(1, 20_001)) / (1 - alpha)
    gains = tokens / (c * np.arange(20_000) + 1)
    best, gain = best_draft_length(alpha, c)
    assert best == np.argmax(gains)
    assert gain == pytest.approx(gains.max())


def test_the_best_may_lie_past_a_pass_that_does_not_pay():
    """A pass over 2 to 8 tokens costs the same, so that one guess is worse than none and seven are better."""
    assert best_draft_length(0.9, 0.01, lambda K: 1.0 if K == 0 else 2.5 if K < 8 else 9.0)[0] == 7


def test_a_best_that_is_bounded():
    assert best_draft_length(0.95, 0.01)[0] == 40
    assert best_draft_length(0.95, 0.01, most=7)[0] == 7
    assert best_draft_length(1.0, 0.0, most=7) == (7, 8.0)


def test_ends():
    assert expected_tokens(0.0, 5) == 1
    assert expected_tokens(1.0, 5) == 6
    assert best_draft_length(0.0, 0.1) == (0, 1.0)
    assert best_draft_length(0.9, 0.1, lambda K: 1.0 + K) == (0, 1.0), "passes that cost as much as single steps"
    assert tokens_of([]) == 1


@pytest.mark.parametrize(("K", "c", "v"), [(1, 0.05, 1.0), (4, 0.1, 1.4), (7, 0.02, 2.0)])
def test_at_the_break_even_the_speedup_is_one(K, c, v):
    alpha = break_even_alpha(K, c, v)
    assert alpha is not None
    assert speedup(alpha, K, c, v) == pytest.approx(1)
    assert speedup(alpha + 0.01, K, c, v) > 1


def test_some_costs_have_no_break_even():
    assert break_even_alpha(2, 1.5) is None
    assert break_even_alpha(4, 0.0) == pytest.approx(0, abs=1e-12)


def test_rounds_of_a_batch_against_simulation():
    alpha, K, tokens, rows = 0.7, 4, 60, 16
    rng = np.random.default_rng(0)
    kept = np.cumprod(rng.random((4000, rows, tokens, K)) < alpha, axis=-1).sum(-1)
    rounds = (np.cumsum(kept + 1, axis=-1) < tokens).sum(-1) + 1
    assert expected_rounds(alpha, K, tokens) == pytest.approx(rounds.mean(), abs=0.05)
    assert expected_rounds(alpha, K, tokens, rows) == pytest.approx(rounds.max(axis=1).mean(), abs=0.15)


def test_rounds():
    assert expected_rounds(0.0, 4, 10, rows=8) == 10
    assert expected_rounds(1.0, 4, 10, rows=8) == 2
    assert expected_rounds(0.5, 3, 0) == 0
    assert expected_rounds(0.8, 4, 1000) == pytest.approx(1000 / expected_tokens(0.8, 4), rel=2e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_tokens(1.1, 4), "alpha is 1.1; expected a probability"),
        (lambda: expected_tokens(float("nan"), 4), "alpha is nan; expected a probability"),
        (lambda: expected_tokens(0.5, -1), "K is -1; expected at least 0"),
        (lambda: tokens_of([0.5, 2.0]), "alpha is 2.0; expected a probability"),
        (lambda: speedup(0.5, 4, -0.1), "draft_cost is -0.1 and verify_cost 1.0; expected numbers"),
        (lambda: speedup(0.5, 4, 0.1, 0.0), "verify_cost 0.0; expected numbers"),
        (lambda: best_draft_length(1.0, 0.1), "more guesses may be better than any K up to 65536; expected a bound"),
        (lambda: best_draft_length(0.6, 0.0), "with alpha 0.6 and draft_cost 0.0 more guesses may be better"),
        (lambda: best_draft_length(0.5, 0.0), "with alpha 0.5 and draft_cost 0.0 more guesses may be better"),
        (lambda: best_draft_length(0.5, 0.1, most=-1), "K is -1; expected at least 0"),
        (lambda: expected_rounds(0.5, 4, -1), "tokens is -1 and rows 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

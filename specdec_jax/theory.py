"""What speculation gives before it is tried: expected tokens, speedup, best draft length, rounds of a batch.

Everything follows from alpha, the chance that a drafted token is kept, taken to be the same for each (Leviathan et al.,
ICML 2023, section 3), and from costs in steps of the target: c of one drafted token, v of a pass over K + 1 tokens.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

__all__ = [
    "best_draft_length",
    "break_even_alpha",
    "expected_rounds",
    "expected_tokens",
    "speedup",
    "tokens_of",
]

_IMPOSSIBLE = 1e-40
"""A probability that no number of rows makes count."""
_LONGEST = 2**16
"""Guesses up to which a best draft length is looked for; no real drafter comes near."""


def expected_tokens(alpha: float, K: int) -> float:
    """Tokens of a round: (1 - alpha^(K+1)) / (1 - alpha), equation 1."""
    _check(alpha, K)
    if alpha in (0, 1) or K == 0:
        return 1.0 + K * alpha
    # Near 1 the difference of a power from 1 would be rounded away.
    return math.expm1((K + 1) * math.log(alpha)) / (alpha - 1)


def tokens_of(alphas: Sequence[float]) -> float:
    """The same with an alpha for each drafted token, given that those before it were kept: 1 + a_1 + a_1 a_2 + ..."""
    for alpha in alphas:
        _check(alpha, 0)
    return 1.0 + float(np.sum(np.cumprod(alphas)))


def speedup(alpha: float, K: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """E / (K c + v): tokens of a round over its cost, against one token a step. Theorem 3.8 with v = 1."""
    _check_costs(draft_cost, verify_cost)
    return expected_tokens(alpha, K) / (K * draft_cost + verify_cost)


def best_draft_length(
    alpha: float, draft_cost: float, verify_cost: Callable[[int], float] = lambda K: 1.0, *, most: int | None = None
) -> tuple[int, float]:
    """The K with the highest speedup, the smallest of equals, and that speedup; 0 is no drafting.

    ``verify_cost(K)`` is what a pass over K + 1 tokens costs. With ``most``, K up to it are tried. Without, all that
    can be best, provided that a wider pass costs no less; ValueError where there is no end to them, as with guesses
    that are all kept or cost nothing.
    """
    _check(alpha, 0 if most is None else most)
    limit = 1 / (1 - alpha) if alpha < 1 else float("inf")  # tokens of a round of endlessly many guesses
    best, gain, tokens = 0, 0.0, 0.0
    for K in range((_LONGEST if most is None else most) + 1):
        _check_costs(draft_cost, verify_cost(K))
        cost = K * draft_cost + verify_cost(K)
        if most is None and limit / cost < (1 - 1e-12) * gain:  # by more than rounding
            return best, gain
        tokens += alpha**K
        if tokens / cost > gain:
            best, gain = K, tokens / cost
    if most is None:
        raise ValueError(
            f"with alpha {alpha} and draft_cost {draft_cost} more guesses may be better than any K up to {_LONGEST}; "
            "expected a bound, the most guesses of a round"
        )
    return best, gain


def break_even_alpha(K: int, draft_cost: float, verify_cost: float = 1.0) -> float | None:
    """The alpha above which drafting K tokens is faster than not drafting; None where it never is."""
    _check_costs(draft_cost, verify_cost)
    if speedup(1.0, K, draft_cost, verify_cost) < 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):  # expected tokens grow with alpha
        middle = (low + high) / 2
        low, high = (low, middle) if speedup(middle, K, draft_cost, verify_cost) >= 1 else (middle, high)
    return high


def expected_rounds(alpha: float, K: int, tokens: int, rows: int = 1) -> float:
    """Rounds until each of ``rows`` independent rows has ``tokens`` tokens: those of the slowest.

    A round gives i of 1 .. K tokens with probability alpha^(i-1) (1 - alpha), and K + 1 with alpha^K. Rows that wait
    for the slowest make a batch's rounds more than tokens over expected tokens of a round.
    """
    _check(alpha, K)
    if tokens < 0 or rows < 1:
        raise ValueError(f"tokens is {tokens} and rows {rows}; expected tokens >= 0 and rows >= 1")
    step = np.array([alpha**i * (1 - alpha) for i in range(K)] + [alpha**K])
    # What is next to impossible is left out at both ends: of many tokens that is most.
    step = step[: np.flatnonzero(step > _IMPOSSIBLE)[-1] + 1]
    # unfinished[n]: the probability to have first + n tokens, fewer than tokens, after the rounds so far.
    unfinished, first = np.ones(min(tokens, 1)), 0
    expected = 0.0
    while True:
        left = unfinished.sum()  # P(a row needs more rounds than so far)
        if left <= 1e-15:
            return expected
        expected += -np.expm1(rows * np.log1p(-left)) if left < 1 else 1.0
        unfinished, first = np.convolve(unfinished, step)[: tokens - first - 1], first + 1
        if len(seen := np.flatnonzero(unfinished > _IMPOSSIBLE)):
            unfinished, first = unfinished[seen[0] : seen[-1] + 1], first + seen[0]


def _check(alpha: float, K: int) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; expected a probability, from 0 to 1")
    if K < 0:
        raise ValueError(f"K is {K}; expected at least 0")


def _check_costs(draft_cost: float, verify_cost: float) -> None:
    if not (0 <= draft_cost < float("inf") and 0 < verify_cost < float("inf")):
        raise ValueError(
            f"draft_cost is {draft_cost} and verify_cost {verify_cost}; expected numbers >= 0 and > 0, in steps of the "
            "target"
        )

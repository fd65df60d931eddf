"""Slow references in NumPy and float64, one row at a time, written from the definitions.

They share no code with the library, so that agreement means something. Rules take exactly the guesses that were made
(n of them, n possibly 0), ``q`` [n, V] and ``p`` [n + 1, V], and the acceptance draws ``u`` [n]; they return how many
guesses are kept and the distribution [V] of the token after them.
"""

import numpy as np

from .exact import Tokens

Outcome = tuple[int, np.ndarray]


def token_rule(tokens: Tokens, q: np.ndarray, p: np.ndarray, u: np.ndarray) -> Outcome:
    """Keep guesses one after the other while u < p / q; at the first refusal draw from what q leaves of p.

    Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (ICML 2023), algorithm 1.
    """
    for i, x in enumerate(tokens):
        if not u[i] < p[i][x] / q[i][x]:
            return i, _normalised(np.maximum(p[i] - q[i], 0), p[i])
    return len(tokens), p[len(tokens)]


def block_rule(tokens: Tokens, q: np.ndarray, p: np.ndarray, u: np.ndarray) -> Outcome:
    """Keep the longest prefix whose own draw accepts it, whatever was said of shorter ones.

    Sun et al., "Block Verification Accelerates Speculative Decoding" (ICLR 2025), algorithm 2.
    """
    n = len(tokens)
    kept, kept_weight = 0, 1.0
    weight = 1.0  # the paper's p_i
    for i in range(1, n + 1):
        x = tokens[i - 1]
        weight = min(1.0, weight * p[i - 1][x] / q[i - 1][x])
        if i == n:
            h = weight
        else:
            rest = np.maximum(weight * p[i] - q[i], 0).sum()
            h = 1.0 if rest == 0 and weight == 1 else rest / (rest + 1 - weight)
        if u[i - 1] < h:
            kept, kept_weight = i, weight
    if kept == n:
        return n, p[n]
    return kept, _normalised(np.maximum(kept_weight * p[kept] - q[kept], 0), p[kept])


def greedy_rule(tokens: Tokens, p: np.ndarray) -> tuple[int, int]:
    """Keep guesses while each is the likeliest token (lowest id on ties); then the likeliest token itself."""
    return _while_equal(tokens, p)


def coupled_rule(tokens: Tokens, p: np.ndarray, noise: np.ndarray) -> tuple[int, int]:
    """Keep guesses while each is the token that the target itself draws with the Gumbel ``noise`` [n + 1, V]."""
    with np.errstate(divide="ignore"):
        return _while_equal(tokens, np.log(p) + noise)


def _while_equal(tokens: Tokens, scores: np.ndarray) -> tuple[int, int]:
    for i, x in enumerate(tokens):
        best = int(np.argmax(scores[i]))
        if x != best:
            return i, best
    return len(tokens), int(np.argmax(scores[len(tokens)]))


def _normalised(weights: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    return weights / weights.sum() if weights.sum() > 0 else fallback


def distribution(
    logits: np.ndarray, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> np.ndarray:
    """The distribution [V] sampled from, by sorting: temperature, top-k, top-p, min-p, each on what is left.

    Tokens as likely as the last one that a cut keeps are kept as well.
    """
    logits = np.asarray(logits, np.float64)
    if temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    scaled = (logits - logits.max()) / temperature
    probs = np.exp(scaled) / np.exp(scaled).sum()
    if top_k > 0:
        last = np.sort(scaled)[::-1][min(top_k, len(scaled)) - 1]
        probs = _keep(probs, scaled >= last)
    if top_p < 1:
        order = np.argsort(-probs, kind="stable")
        reached = np.searchsorted(np.cumsum(probs[order]), top_p)
        probs = _keep(probs, scaled >= scaled[order[min(reached, len(order) - 1)]])
    return _keep(probs, probs >= min_p * probs.max())


def _keep(probs: np.ndarray, kept: np.ndarray) -> np.ndarray:
    probs = np.where(kept, probs, 0)
    return probs / probs.sum()


def ngram_guesses(tokens: Tokens, count: int, *, max_ngram: int, min_ngram: int = 1) -> list[int]:
    """What an n-gram drafter guesses after ``tokens``: ``count`` guesses, or none where nothing matches.

    The longest run of last tokens (max_ngram down to min_ngram of them) that occurred before decides, in its most
    recent occurrence; the guesses are what followed it, read periodically once the end of the row is reached.
    """
    n = len(tokens)
    for size in range(max_ngram, min_ngram - 1, -1):
        for last in range(n - 2, size - 2, -1):  # where the earlier occurrence ends, most recent first
            if list(tokens[last - size + 1 : last + 1]) == list(tokens[n - size :]):
                return [tokens[last + 1 + i % (n - 1 - last)] for i in range(count)]
    return []

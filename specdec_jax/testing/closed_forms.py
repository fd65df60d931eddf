"""Expected numbers of accepted guesses, in closed form: what the rules must reach."""

import numpy as np

from .exact import Tree


def acceptance_probability(p: np.ndarray, q: np.ndarray) -> float:
    """alpha = sum min(p, q): how often the token rule keeps one guess from q."""
    return float(np.minimum(p, q).sum())


def token_rule_tokens(alpha: float, K: int) -> float:
    """Tokens committed by a round of the token rule whose every guess is kept with probability ``alpha``.

    (1 - alpha^(K+1)) / (1 - alpha); Leviathan et al. (ICML 2023), equation 1.
    """
    return float(K + 1) if alpha == 1 else (1 - alpha ** (K + 1)) / (1 - alpha)


def token_rule_accepted(p: Tree, q: Tree) -> float:
    """Guesses that the token rule keeps on average: sum over prefixes of prod min(p, q)."""
    total, reach = 0.0, np.ones(())
    for p_level, q_level in zip(p, q, strict=False):
        reach = reach[..., None] * np.minimum(p_level, q_level).astype(np.float64)
        total += reach.sum()
    return float(total)


def prefix_probabilities(p: Tree, q: Tree) -> list[np.ndarray]:
    """P(at least i guesses kept | x_1..i) of the block rule, i = 1, 2, ..: p_i = min(1, p_{i-1} p / q), [V] * i.

    Sun et al. (ICLR 2025), equation 3. Zero where a prefix is never drafted.
    """
    levels, last = [], np.ones(())
    for p_level, q_level in zip(p, q, strict=False):
        p64, q64 = p_level.astype(np.float64), q_level.astype(np.float64)
        ratio = np.divide(p64, q64, out=np.zeros_like(p64), where=q64 > 0)
        last = np.minimum(1, last[..., None] * ratio)
        levels.append(last)
    return levels


def block_rule_accepted(p: Tree, q: Tree) -> float:
    """Guesses that the block rule keeps on average: sum over i and x_1..i of q(x_1..i) p_i."""
    total, drafted = 0.0, np.ones(())
    for q_level, kept in zip(q, prefix_probabilities(p, q), strict=True):
        drafted = drafted[..., None] * q_level.astype(np.float64)
        total += (drafted * kept).sum()
    return float(total)

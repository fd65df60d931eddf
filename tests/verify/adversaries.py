"""Pairs of target and draft distributions that a rule may be unkind to."""

import numpy as np

from specdec_jax.testing import Tree, constant_tree, random_tree


def opponents(vocab_size: int, K: int) -> dict[str, tuple[Tree, Tree]]:
    """Named pairs of p (K + 1 levels) and q (K levels); all but the last ones depend on what came before."""
    rng = np.random.default_rng(vocab_size * 10 + K)
    p, q = random_tree(rng, vocab_size, K + 1), random_tree(rng, vocab_size, K)
    peaked_p, peaked_q = random_tree(rng, vocab_size, K + 1, 0.1), random_tree(rng, vocab_size, K, 0.1)
    even = np.arange(vocab_size) % 2 == 0
    tiny = np.where(even, 1.0, 1e-30).astype(np.float32)
    rising = np.arange(1, vocab_size + 1) / (vocab_size * (vocab_size + 1) / 2)
    return {
        "random": (p, q),
        "peaked": (peaked_p, peaked_q),
        "equal": (p, p[:K]),
        "equal up to rounding": (p, [_nudged(rng, level) for level in p[:K]]),
        "disjoint": (_restricted(p, even), _restricted(q, ~even)),
        "p zero where q is not": (_restricted(p, even), q),
        "q zero where p is not": (p, _restricted(q, even)),
        "p one-hot": ([_one_hot(level) for level in p], q),
        "q one-hot": (p, [_one_hot(level) for level in q]),
        "both one-hot": ([_one_hot(level) for level in p], [_one_hot(level) for level in q]),
        "p tiny where q is not": (_weighted(p, tiny), q),
        "q tiny where p is not": (p, _weighted(q, tiny)),
        "opposed": (constant_tree(rising, K + 1), constant_tree(rising[::-1], K)),
    }


def targets(vocab_size: int, K: int) -> dict[str, Tree]:
    """The different p among them, each under the first name it has there."""
    found: dict[str, Tree] = {}
    for name, (p, _) in opponents(vocab_size, K).items():
        if not any(np.array_equal(p[-1], other[-1]) for other in found.values()):
            found[name] = p
    return found


def _nudged(rng: np.random.Generator, level: np.ndarray) -> np.ndarray:
    """Every number moved to one of its float32 neighbours, or not at all."""
    towards = rng.choice([0.0, 1.0], size=level.shape).astype(np.float32)
    return np.where(rng.random(level.shape) < 0.5, np.nextafter(level, towards), level)


def _weighted(tree: Tree, weights: np.ndarray) -> Tree:
    levels = [level * weights for level in tree]
    return [level / level.sum(-1, keepdims=True) for level in levels]


def _restricted(tree: Tree, kept: np.ndarray) -> Tree:
    return _weighted(tree, kept.astype(np.float32))


def _one_hot(level: np.ndarray) -> np.ndarray:
    return np.eye(level.shape[-1], dtype=np.float32)[level.argmax(-1)]

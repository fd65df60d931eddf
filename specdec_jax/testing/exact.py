"""Exact laws of small things: distributions that depend on what came before, and sequences with their end rules."""

from collections.abc import Callable, Sequence

import numpy as np

Tokens = Sequence[int] | np.ndarray

Tree = list[np.ndarray]
"""Level i, of shape [V] * (i + 1), holds the distribution of token i given each of the i tokens before it."""


def random_tree(rng: np.random.Generator, vocab_size: int, depth: int, concentration: float = 1.0) -> Tree:
    """``depth`` levels of Dirichlet distributions, in float32; a low concentration makes them peaked."""
    levels = (rng.dirichlet(np.full(vocab_size, concentration), size=(vocab_size,) * level) for level in range(depth))
    return [level.astype(np.float32) for level in levels]


def constant_tree(distribution: Sequence[float] | np.ndarray, depth: int) -> Tree:
    """The same distribution whatever came before."""
    row = np.asarray(distribution, np.float32)
    return [np.broadcast_to(row, (len(row),) * (level + 1)) for level in range(depth)]


def joint(tree: Tree) -> np.ndarray:
    """The law of all the tokens of a tree, [V] * depth, in float64."""
    law = np.ones(())
    for level in tree:
        law = law[..., None] * level.astype(np.float64)
    return law


def sequence_law(
    next_distribution: Callable[[tuple[int, ...]], np.ndarray],
    prompt: Tokens,
    max_new_tokens: int,
    end_tokens: Sequence[int] = (),
) -> dict[tuple[int, ...], float]:
    """The probability of every sequence of new tokens that a generation can end with.

    ``next_distribution`` maps all tokens so far to the distribution [V] that the next is drawn from. A sequence ends
    with its first end token, which it includes, or at ``max_new_tokens``.
    """
    law: dict[tuple[int, ...], float] = {}

    def extend(new: tuple[int, ...], probability: float) -> None:
        if len(new) == max_new_tokens or (new and new[-1] in end_tokens):
            law[new] = probability
            return
        for token, chance in enumerate(next_distribution((*prompt, *new))):
            if chance > 0:
                extend((*new, token), probability * float(chance))

    extend((), 1.0)
    return law

"""The law of a rule, computed through the rule's own functions: no sampling, so no doubt.

Every block that can be drafted, every way in which its acceptance draws can fall (each below or above its threshold)
and every next token is visited, with its exact probability. What is committed is completed from p to K + 1 tokens; if
the rule is exact, the law of these is p's, whatever q is.
"""

from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array
from ..verify import Proposal
from .exact import Tree


@runtime_checkable
class SampledRule(Protocol):
    """The parts of a rule that decides by uniform draws; the modules `verify.token` and `verify.block` are such."""

    def thresholds(self, proposal: Proposal, p: Array, /) -> Array:
        """h [B, K]: draw i accepts where u_i < h_i."""
        ...

    def num_accepted(self, u: Array, h: Array, /) -> Array:
        """How many guesses [B] are kept."""
        ...

    def next_weights(self, proposal: Proposal, p: Array, accepted: Array, /) -> Array:
        """The unnormalised distribution [B, V] of the token after them."""
        ...


class RuleLaw(NamedTuple):
    """What a rule does to one p and one q."""

    committed: np.ndarray  # [V] * (K + 1): the law of the committed tokens, completed from p
    accepted: float  # the expected number of guesses kept
    at_least: np.ndarray  # [K, N]: P(at least i guesses kept | block), i = 1..K, over all N = V^K blocks


class _Blocks(NamedTuple):
    tokens: np.ndarray  # [N, K]: every block of K tokens
    p: np.ndarray  # [N, K+1, V]
    q: np.ndarray  # [N, K, V]


def rule_law(rule: SampledRule, p: Tree, q: Tree, length: int | None = None) -> RuleLaw:
    """The law of ``rule`` for guesses drawn from ``q`` (K levels) with target ``p`` (K + 1 levels).

    ``length`` guesses are proposed (K where None); the places behind them hold token 0 and must not matter.
    Raises AssertionError where the rule gives NaN, a threshold outside [0, 1], or no next token.
    """
    K = len(q)
    length = K if length is None else length
    blocks = _every_block(p, q)
    chance = np.ones(len(blocks.tokens))
    for i in range(K):
        drafted = np.take_along_axis(blocks.q[:, i], blocks.tokens[:, i, None], axis=1)[:, 0].astype(np.float64)
        chance *= drafted if i < length else blocks.tokens[:, i] == 0
    outcome = _outcomes(rule, _proposal(blocks, length, drawn=True), jnp.asarray(blocks.p))
    return _accumulate(p, blocks.tokens, chance, *map(np.asarray, outcome))


def guessed_laws(rule: SampledRule, p: Tree, length: int) -> list[RuleLaw]:
    """The same for deterministic guesses (q None): one law for each block of K = len(p) - 1 tokens."""
    blocks = _every_block(p, p[:-1])
    outcome = [np.asarray(x) for x in _outcomes(rule, _proposal(blocks, length, drawn=False), jnp.asarray(blocks.p))]
    return [_accumulate(p, blocks.tokens, chance, *outcome) for chance in np.eye(len(blocks.tokens))]


def _every_block(p: Tree, q: Tree) -> _Blocks:
    V, K = p[0].shape[0], len(q)
    tokens = np.indices((V,) * K).reshape(K, -1).T.astype(np.int32)

    def at(tree):
        return np.stack(
            [level[tuple(tokens[:, :i].T)] + np.zeros((len(tokens), 1), np.float32) for i, level in enumerate(tree)], 1
        )

    return _Blocks(tokens, at(p), at(q))


def _proposal(blocks: _Blocks, length: int, drawn: bool) -> Proposal:
    lengths = jnp.full(len(blocks.tokens), length, jnp.int32)
    return Proposal(jnp.asarray(blocks.tokens), jnp.asarray(blocks.q) if drawn else None, lengths)


@partial(jax.jit, static_argnums=0)
def _outcomes(rule: SampledRule, proposal: Proposal, p: Array) -> tuple[Array, Array, Array, Array]:
    """For each of the C = 2^K ways the draws fall: volume [C, N], kept [C, N], next weights [C, N, V]; and h [N, K]."""
    K = proposal.tokens.shape[1]
    h = rule.thresholds(proposal, p)

    def fall(below):
        u = jnp.where(below, h / 2, (1 + h) / 2)  # a point inside each cell
        volume = jnp.where(below, h, 1 - h).prod(axis=1)
        kept = rule.num_accepted(u, h)
        return volume, kept, rule.next_weights(proposal, p, kept)

    ways = jnp.asarray(np.indices((2,) * K).reshape(K, -1).T == 0)[:, None, :]
    return *jax.lax.map(fall, ways), h


def _accumulate(p: Tree, tokens, chance, volume, kept, weights, h) -> RuleLaw:
    K, V = tokens.shape[1], p[0].shape[0]
    assert ((h >= 0) & (h <= 1)).all(), f"thresholds outside [0, 1]: {h}"
    assert ((weights >= 0) & (weights < np.inf)).all(), "weights of the next token are negative or not finite"
    assert (weights.sum(-1) > 0).all(), "a next token that cannot be drawn: all its weights are zero"
    weights = weights.astype(np.float64)
    following = weights / weights.sum(-1, keepdims=True)
    mass = volume.astype(np.float64) * chance

    committed = np.zeros((V,) * (K + 1))
    for count in range(K + 1):
        way, block = np.nonzero(kept == count)
        prefix = tokens[block, :count] @ V ** np.arange(count)[::-1]
        partial_law = np.zeros((V**count, V))
        np.add.at(partial_law, prefix, mass[way, block, None] * following[way, block])
        partial_law = partial_law.reshape((V,) * (count + 1))
        for level in p[count + 1 :]:
            partial_law = partial_law[..., None] * level.astype(np.float64)
        committed += partial_law
    at_least = np.stack([(volume * (kept >= i)).sum(0) for i in range(1, K + 1)])
    return RuleLaw(committed, float((mass * kept).sum()), at_least)

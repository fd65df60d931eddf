"""What a rule must pass, as functions to call on any rule; each raises AssertionError where the rule is not exact."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._typing import Array
from ..sampling import RoundKeys, row_keys
from ..verify import Proposal, Rule
from .enumeration import RuleLaw, SampledRule, guessed_laws, rule_law
from .exact import Tree, constant_tree, joint
from .statistics import chi_square_p_value

TOLERANCE = 1e-6
SIGNIFICANCE = 1e-4
"""The p-value at or below which a check fails: of checks of what is true, one in 10,000 at most."""


def check_law(rule: SampledRule, p: Tree, q: Tree, length: int | None = None) -> RuleLaw:
    """By enumeration: the committed tokens have the law of p, to 1e-6, for guesses drawn from q."""
    law = rule_law(rule, p, q, length)
    _assert_law(law, p)
    return law


def check_guessed_laws(rule: SampledRule, p: Tree, length: int) -> None:
    """The same for deterministic guesses, for every block that could be guessed."""
    for law in guessed_laws(rule, p, length):
        _assert_law(law, p)


def _assert_law(law: RuleLaw, p: Tree) -> None:
    error = np.abs(law.committed - joint(p)).max()
    assert error < TOLERANCE, f"the law of the committed tokens is off by {error:.2e}"


def check_strict(rule: SampledRule) -> None:
    """A guess of probability 0 under p is refused even by a draw of exactly 0."""
    p = jnp.array([[[0.0, 1.0], [0.5, 0.5]]], jnp.float32)
    q = jnp.array([[[1.0, 0.0]]], jnp.float32)
    proposal = Proposal(jnp.zeros((1, 1), jnp.int32), q, jnp.ones(1, jnp.int32))
    accepted = rule.num_accepted(jnp.zeros((1, 1), jnp.float32), rule.thresholds(proposal, p))
    assert int(accepted[0]) == 0, "a draw of 0 accepted a token of probability 0"


def check_draws(
    rule: Rule, p: np.ndarray, q: np.ndarray, *, K: int, tokens: int, key: Array, rows: int = 200_000
) -> None:
    """By chi-square: whole rounds of ``rule.draw`` and ``rule.verify`` give ``tokens`` independent tokens of p [V].

    This sees what enumeration cannot: noise shared between the draft, the acceptance, the next token and later rounds.
    """
    out = np.asarray(
        decode_rounds(rule, key, jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32), K, tokens, rows)
    )
    counts = np.bincount(np.ravel_multi_index(tuple(out.T), (len(p),) * tokens), minlength=len(p) ** tokens)
    p_value = chi_square_p_value(counts, joint(constant_tree(p, tokens)))
    assert p_value > SIGNIFICANCE, f"{tokens} tokens of {rows} rows do not look drawn from p (p-value {p_value:.1e})"


@partial(jax.jit, static_argnums=(0, 4, 5, 6))
def decode_rounds(rule: Rule, key: Array, p: Array, q: Array, K: int, tokens: int, rows: int) -> Array:
    """The first ``tokens`` tokens of ``rows`` rows, where p [V] and q [V] are the same at every place."""
    keys = row_keys(key, rows)
    p_rows = jnp.broadcast_to(p, (rows, K + 1, p.shape[0]))
    q_rows = jnp.broadcast_to(q, (rows, K, q.shape[0]))
    full = jnp.full(rows, K, jnp.int32)

    def one_round(_, state):
        out, start = state
        round_keys = RoundKeys(keys, start)
        guesses = [rule.draw(round_keys, jnp.int32(i), q_rows[:, i]) for i in range(K)]
        guesses = jnp.stack(guesses, axis=1)
        verdict = rule.verify(round_keys, Proposal(guesses, q_rows, full), p_rows)
        place = jnp.arange(K + 1, dtype=jnp.int32)[None, :]
        committed = jnp.where(
            place < verdict.num_accepted[:, None],
            jnp.pad(guesses, ((0, 0), (0, 1))),
            verdict.next_token[:, None],
        )
        kept = place <= verdict.num_accepted[:, None]
        slot = jnp.where(kept, start[:, None] + place, tokens)  # dropped: out of range
        out = out.at[jnp.arange(rows)[:, None], slot].set(committed, mode="drop")
        return out, start + verdict.num_accepted + 1

    # Every round commits a token at least, so as many rounds as tokens are enough.
    start = jnp.zeros(rows, jnp.int32)
    return lax.fori_loop(0, tokens, one_round, (jnp.zeros((rows, tokens), jnp.int32), start))[0]

"""The checks themselves are tested: each way of breaking a rule must be noticed by one of them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adversaries import opponents
from marks import at_once

from specdec_jax.sampling import RoundKeys, draw
from specdec_jax.sampling.draw import ACCEPT, DRAFT, RESIDUAL, gumbel, stream
from specdec_jax.testing import check_draws, check_guessed_laws, check_law, check_strict
from specdec_jax.verify import RULES, Proposal, Rule, Verdict, block, proposal, token

V, K = 4, 2


class Parts(NamedTuple):
    thresholds: Callable
    num_accepted: Callable
    next_weights: Callable


def parts_of(module, **changed) -> Parts:
    return Parts(module.thresholds, module.num_accepted, module.next_weights)._replace(**changed)


def first_refusal(u, h):
    return jnp.cumprod((u < h).astype(jnp.int32), axis=1).sum(1)


def any_length(guesses: Proposal) -> Proposal:
    return guesses._replace(length=jnp.full_like(guesses.length, guesses.tokens.shape[1]))


def swapped(guesses: Proposal, p):
    """p and q in each other's place."""
    return guesses._replace(q=p[:, :-1]), jnp.concatenate([proposal.q_of(guesses, p.shape[-1]), p[:, -1:]], axis=1)


def p_itself(guesses: Proposal, p, accepted):
    return jnp.take_along_axis(p, accepted[:, None, None], axis=1)[:, 0]


WRONG_LAWS = {
    "token: p and q swapped": parts_of(token, thresholds=lambda x, p: token.thresholds(*swapped(x, p))),
    "token: residual dropped": parts_of(token, next_weights=p_itself),
    "token: everything accepted": parts_of(token, thresholds=lambda x, p: jnp.ones(x.tokens.shape, jnp.float32)),
    "token: later acceptance overrides": parts_of(token, num_accepted=block.num_accepted),
    "block: p and q swapped": parts_of(block, thresholds=lambda x, p: block.thresholds(*swapped(x, p))),
    "block: residual dropped": parts_of(block, next_weights=p_itself),
    "block: residual not scaled": parts_of(block, next_weights=token.next_weights),
    "block: first refusal ends": parts_of(block, num_accepted=first_refusal),
    "block: thresholds without residual": parts_of(
        block, thresholds=lambda x, p: block.prefix_probabilities(x, p)[:, 1:]
    ),
    "block: last place is K, not the row's": parts_of(
        block, thresholds=lambda x, p: block.thresholds(any_length(x), p)
    ),
}


@pytest.mark.parametrize("parts", WRONG_LAWS.values(), ids=WRONG_LAWS)
def test_enumeration_notices(parts):
    def check_all():
        for p, q in opponents(V, K).values():
            for length in range(1, K + 1):
                check_law(parts, p, q, length)
                check_guessed_laws(parts, p, length)

    with pytest.raises(AssertionError, match="the law of the committed tokens is off by"):
        check_all()


def test_acceptance_at_threshold_zero_is_noticed():
    parts = parts_of(token, num_accepted=lambda u, h: jnp.cumprod((u <= h).astype(jnp.int32), axis=1).sum(1))
    with pytest.raises(AssertionError, match="accepted a token of probability 0"):
        check_strict(parts)


def fresh(rule: Rule) -> Rule:
    """The same rule under new function objects, so that jit traces it anew with what is patched."""
    return Rule(verify=lambda *a: rule.verify(*a), draw=lambda *a: rule.draw(*a))


@pytest.mark.parametrize("name", at_once(["token", "block"], ["block"]))
def test_draft_noise_used_again_for_the_next_token_is_noticed(monkeypatch, name):
    monkeypatch.setattr(proposal, "RESIDUAL", DRAFT)
    p = np.arange(1, 17) / 136
    with pytest.raises(AssertionError, match="do not look drawn from p"):
        check_draws(fresh(RULES[name]), p, p[::-1], K=2, tokens=1, key=jax.random.key(21), rows=20_000)


@pytest.mark.parametrize("name", at_once(["token", "block"], ["block"]))
def test_draft_noise_used_again_for_acceptance_is_noticed(name):
    """What won the guess its race then decides whether it is kept."""
    parts = {"token": token, "block": block}[name]

    def verify(keys, guesses, p):
        V = p.shape[-1]
        # Sixteen tokens are sixteen groups of one: the first heat decides.
        heats = [jax.vmap(jax.random.split)(stream(keys, DRAFT, i))[:, 0] for i in range(guesses.tokens.shape[1])]
        noise = [gumbel(heat, V) for heat in heats]
        won = jnp.take_along_axis(jnp.stack(noise, axis=1), guesses.tokens[:, :, None], axis=2)[:, :, 0]
        accepted = parts.num_accepted(jnp.exp(-jnp.exp(-won)), parts.thresholds(guesses, p))
        return Verdict(accepted, draw(stream(keys, RESIDUAL), parts.next_weights(guesses, p, accepted)))

    p = np.arange(1, 17) / 136
    rule = Rule(verify=verify, draw=RULES[name].draw)
    with pytest.raises(AssertionError, match="do not look drawn from p"):
        check_draws(rule, p, p[::-1], K=2, tokens=1, key=jax.random.key(21), rows=20_000)


def keyed_by_position(parts) -> Rule:
    """A rule whose noise belongs to each token's position instead of to the round."""

    def keys_at(keys: RoundKeys, which: int, place):
        return stream(RoundKeys(keys.row, keys.start + place), which)

    def verify(keys, guesses, p):
        uniform = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32))
        u = jnp.stack([uniform(keys_at(keys, ACCEPT, i)) for i in range(guesses.tokens.shape[1])], axis=1)
        accepted = parts.num_accepted(u, parts.thresholds(guesses, p))
        return Verdict(accepted, draw(keys_at(keys, RESIDUAL, accepted), parts.next_weights(guesses, p, accepted)))

    return Rule(verify=verify, draw=lambda keys, index, q: draw(keys_at(keys, DRAFT, index), q))


@pytest.mark.heavy
def test_noise_keyed_by_position_is_noticed():
    with pytest.raises(AssertionError, match="do not look drawn from p"):
        check_draws(
            keyed_by_position(block),
            np.array([1, 2]) / 3,
            np.array([2, 1]) / 3,
            K=3,
            tokens=5,
            key=jax.random.key(12),
            rows=50_000,
        )

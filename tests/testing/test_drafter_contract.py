"""The check of drafters: it passes ours, and names what others break."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once

from specdec_jax import DRAFTERS, Drafter, SamplingParams, draft_model, early_exit, feature_head, ngram
from specdec_jax.drafters import likeliest_below, never
from specdec_jax.sampling import probabilities
from specdec_jax.testing import BrokenContractError, check_drafter, history_head, history_model, random_logits
from specdec_jax.testing.drafter import _close_q
from specdec_jax.verify import Proposal

V = 8
TARGET, PARAMS = history_model(V), random_logits(0, 97, V)
WEAK = (PARAMS + random_logits(1, 97, V, spread=0.7)).astype(np.float32)
DRAFT = draft_model(TARGET)
OURS = {
    "draft_model": (DRAFT, WEAK),
    "early_exit": (early_exit(TARGET), WEAK),
    "feature_head": (feature_head(history_head(V)), WEAK),
    "ngram": (ngram(max_ngram=3), None),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.heavy] * (n != "ngram")) for n in DRAFTERS])
def test_our_drafters_pass(name):
    drafter, params = OURS[name]
    check_drafter(drafter, params, TARGET, PARAMS)


@pytest.mark.heavy
@pytest.mark.parametrize("build", [draft_model, feature_head], ids=lambda build: build.__name__)
def test_drafters_that_stop_early_pass(build):
    """Most of all: they go on from what was committed, though rows stopped at other places than the loop."""
    model = history_head(V) if build is feature_head else TARGET
    check_drafter(build(model, stop=likeliest_below(0.4)), WEAK, TARGET, PARAMS)


def proposing(change) -> Drafter:
    """The draft model with another proposal: ``change(proposal, limit, context)``."""

    def propose(params, state, context, K, limit, draw):
        proposal, state = DRAFT.propose(params, state, context, K, limit, draw)
        return change(proposal, limit, context), state

    return DRAFT._replace(propose=propose)


def says(change) -> Drafter:
    """The draft model, which draws from q and says ``change(q, sampling)``, made to sum to 1."""

    def another(proposal, limit, context):
        q = change(proposal.q, context.sampling)
        return proposal._replace(q=q / q.sum(-1, keepdims=True))

    return proposing(another)


NEARLY_TRUE = {
    "sharper": says(lambda q, sampling: q**2),
    "flatter": says(lambda q, sampling: jnp.where(q > 0, q**0.9, 0)),
    "in bfloat16": says(lambda q, sampling: q.astype(jnp.bfloat16).astype(jnp.float32)),
    "one bit of one number": proposing(lambda p, limit, c: p._replace(q=p.q.at[1, 1, 0].multiply(1 + 2**-23))),
    "only where top-k cuts": says(lambda q, sampling: jnp.where((sampling.top_k == 2)[:, None, None], q**0.9, q)),
}


@pytest.mark.parametrize("how", at_once(NEARLY_TRUE, ["in bfloat16", "one bit of one number"]))
def test_a_q_that_is_nearly_the_one_drawn_from(how):
    """The tokens are those of draw, and its argmax for the q that is said may be the same: only q itself tells."""
    with pytest.raises(BrokenContractError, match=r"q is, bit for bit, what draw was given.*it differs by up to"):
        check_drafter(NEARLY_TRUE[how], WEAK, TARGET, PARAMS)


def wobbly(params, tokens, cache, lengths):
    """A target as in bfloat16: its logits follow from the width of the pass as well."""
    logits, hidden, cache = TARGET.apply(params, tokens, cache, lengths)
    return logits.at[:, :, 1].add(jnp.float32(0.05 * (tokens.shape[1] - 2))), hidden, cache


@pytest.mark.heavy
def test_what_ties_on_a_target_that_rounds_is_no_fault():
    check_drafter(DRAFT, WEAK, TARGET._replace(apply=wobbly), PARAMS)


def drifting(by: float, stop) -> Drafter:
    """A draft model whose logits change by a factor in each round."""
    model = draft_model(TARGET, stop=stop)

    def propose(params, state, context, K, limit, draw):
        proposal, inner = model.propose(params * state[1], state[0], context, K, limit, draw)
        return proposal, (inner, state[1])

    def commit(params, state, context, hidden):
        return model.commit(params, state[0], context, hidden), state[1] * by

    return Drafter(lambda *how: (model.init(*how), jnp.float32(1)), propose, commit, vocab_size=V)


@pytest.mark.heavy
def test_a_stop_that_q_only_just_passes_may_decide_otherwise():
    flat = np.zeros((97, V), np.float32)
    flat[:, 3] = 1
    threshold = np.e / (np.e + V - 1) * (1 + 1e-5)  # a hair above all that the drafter says before its first round
    check_drafter(drifting(1 + 1e-4, likeliest_below(threshold)), flat, TARGET, PARAMS)


def test_lengths_that_follow_from_the_round_are_no_tie():
    def propose(params, state, context, K, limit, draw):
        proposal, inner = DRAFT.propose(params, state[0], context, K, limit, draw)
        return proposal._replace(length=jnp.minimum(proposal.length, state[1])), (inner, state[1])

    def commit(params, state, context, hidden):
        return DRAFT.commit(params, state[0], context, hidden), state[1] - 1

    drafter = Drafter(lambda *how: (DRAFT.init(*how), jnp.int32(3)), propose, commit, vocab_size=V)
    with pytest.raises(BrokenContractError, match=r"follow from the committed tokens alone.*guesses instead of"):
        check_drafter(drafter, WEAK, TARGET, PARAMS)


def hides_a_guess_by_its_value(proposal, limit, context):
    """As a drafter would that stops where it does not like what it drew."""
    dull = proposal.tokens >= V // 2
    return proposal._replace(length=jnp.minimum(proposal.length, jnp.where(dull.any(1), dull.argmax(1), 99)))


def blind_to_sampling(params, state, context, K, limit, draw):
    plain = context._replace(sampling=SamplingParams().broadcast(context.lengths.shape[0]))
    return DRAFT.propose(params, state, plain, K, limit, draw)


BROKEN = {
    "vocab_size is the target's": DRAFT._replace(vocab_size=V + 1),
    "gets from 0 to limit guesses": proposing(lambda p, limit, c: p._replace(length=limit + 1)),
    "token ids from 0 to 7": proposing(lambda p, limit, c: p._replace(tokens=p.tokens + V)),
    "q is a distribution": proposing(lambda p, limit, c: p._replace(q=p.q * 1.1)),
    "bit for bit, what draw was given": proposing(lambda p, limit, c: p._replace(q=p.q[:, :, ::-1])),
    r"tokens \[B, K\]": proposing(lambda p, limit, c: p._replace(tokens=p.tokens[:, :-1])),
    "does not depend on the value drawn for it": proposing(hides_a_guess_by_its_value),
    "after the transforms of context.sampling": DRAFT._replace(propose=blind_to_sampling),
    "follow from the committed tokens alone": drifting(1.5, never),
    "rows do not depend on each other": proposing(
        lambda p, limit, c: p._replace(length=jnp.minimum(p.length, c.lengths.shape[0] - 2))
    ),
    "commit returns its state in the form": DRAFT._replace(commit=lambda params, state, *_: {"state": state}),
}


# Each kind of fault at once: of what is declared, of q, and of what guesses depend on.
@pytest.mark.parametrize("message", at_once(BROKEN, list(BROKEN)[::6]))
def test_what_is_broken_is_named(message):
    with pytest.raises(BrokenContractError, match=message):
        check_drafter(BROKEN[message], WEAK, TARGET, PARAMS)


@pytest.mark.heavy
@pytest.mark.parametrize("name", SamplingParams._fields)
def test_a_transform_that_is_left_out(name):
    without = SamplingParams()._asdict()[name]

    def propose(params, state, context, K, limit, draw):
        value = jnp.full_like(context.sampling._asdict()[name], without)
        return DRAFT.propose(
            params, state, context._replace(sampling=context.sampling._replace(**{name: value})), K, limit, draw
        )

    with pytest.raises(BrokenContractError, match="transforms of context"):
        check_drafter(DRAFT._replace(propose=propose), WEAK, TARGET, PARAMS)


@pytest.mark.parametrize("tolerance", [1e-3, 0.1])
def test_q_is_held_to_what_the_tolerance_of_logits_makes_of_it(tolerance):
    """No more than numbers below 0.1 may differ by than others: each by its own share."""
    q = np.array([[0.9, 0.09, 0.01]], np.float32)
    for by, passes in ((1.9 * tolerance, True), (2.1 * tolerance, False)):
        other = q * np.exp(np.array([0, 0, by], np.float32))
        if passes:
            _close_q("q", other, q, tolerance)
        else:
            with pytest.raises(BrokenContractError, match=r"q of some token is .* instead of 0.01"):
                _close_q("q", other, q, tolerance)


def test_a_drafter_with_noise_of_its_own():
    """Guesses that do not come from draw break the coupled rule's acceptance, and exactness under the others."""

    def propose(params, state, context, K, limit, draw):
        proposal, state = DRAFT.propose(params, state, context, K, limit, draw)
        own = jax.random.randint(jax.random.key(0), proposal.tokens.shape, 0, V, jnp.int32)
        return proposal._replace(tokens=own), state

    with pytest.raises(BrokenContractError, match="a guess is the token that draw gave back"):
        check_drafter(DRAFT._replace(propose=propose), WEAK, TARGET, PARAMS)


def test_a_drafter_that_draws_again_until_it_likes_the_guess():
    """q moves after a first look at what would be drawn from it."""

    def propose(params, state, context, K, limit, draw):
        def look(index, q):
            token = draw(index, q)
            moved = q * jnp.where(jnp.arange(V)[None] < V // 2, 1, 3)
            q = jnp.where(token[:, None] < V // 2, moved / moved.sum(-1, keepdims=True), q)
            return draw(index, q)

        return DRAFT.propose(params, state, context, K, limit, look)

    with pytest.raises(BrokenContractError, match="draw is called once for a guess"):
        check_drafter(DRAFT._replace(propose=propose), WEAK, TARGET, PARAMS)


def test_a_drafter_whose_q_follows_from_a_later_guess():
    """It draws the guesses from last to first."""

    def propose(params, state, context, K, limit, draw):
        rows = context.lengths.shape[0]
        ids = jnp.arange(V)[None]
        tokens, qs, follow = [], [], jnp.zeros((rows,), jnp.int32)
        for index in reversed(range(K)):
            q = jnp.where(ids == follow[:, None], 0.3, 0.1).astype(jnp.float32)
            follow = draw(index, q)
            tokens.append(follow)
            qs.append(q)
        proposal = Proposal(jnp.stack(tokens[::-1], 1), jnp.stack(qs[::-1], 1), jnp.minimum(limit, K))
        return proposal, state

    with pytest.raises(BrokenContractError, match="q of a guess does not depend on what is drawn for it or later"):
        check_drafter(DRAFT._replace(propose=propose), WEAK, TARGET, PARAMS)


def test_a_drafter_that_guesses_nothing_is_not_checked():
    with pytest.raises(ValueError, match=r"made no guess in .* rounds, so there was nothing to check; exp"):
        check_drafter(draft_model(TARGET, stop=likeliest_below(1.0)), WEAK, TARGET, PARAMS)


def test_a_drafter_that_never_draws():
    def propose(params, state, context, K, limit, draw):
        return DRAFT.propose(params, state, context, K, limit, lambda index, q: q.argmax(-1).astype(jnp.int32))

    with pytest.raises(BrokenContractError, match="draw was not called for it"):
        check_drafter(DRAFT._replace(propose=propose), WEAK, TARGET, PARAMS)


@pytest.mark.heavy
def test_a_drafter_that_spoils_the_cache_it_shares():
    """Its guesses are in order, for they do not come from there: only the output tells."""

    def propose(params, cache, context, K, limit, draw):
        flat = jnp.zeros((limit.shape[0], 1, V), jnp.float32)
        q = probabilities(flat, context.sampling)[:, 0]
        tokens = [draw(index, q) for index in range(K)]
        spoilt = cache.at[:, 0].set((cache[:, 0] + 1) % V)
        return Proposal(jnp.stack(tokens, 1), jnp.stack([q] * K, 1), limit), spoilt

    drafter = Drafter(lambda *_: (), propose, lambda params, state, *_: state, shares_cache=True)
    with pytest.raises(BrokenContractError, match="under the coupled rule the output is that of plain decoding"):
        check_drafter(drafter, None, TARGET, PARAMS)

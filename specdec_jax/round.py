"""One round: propose, verify, commit."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ._inputs import check_step
from ._typing import Array, Bool, Float, Int, PyTree
from .drafters import Context, Drafter
from .lm import LanguageModel
from .sampling import RoundKeys, probabilities
from .state import FinishReason, GenerateConfig, GenerateState, Logprobs, Round, Stats
from .verify import RULES, Proposal, Rule, Verdict


def step(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    state: GenerateState,
    *,
    config: GenerateConfig,
    draft_length: Int[Array, "*b"] | int | None = None,
) -> tuple[GenerateState, Round]:
    """One round for every row that still runs; a row that has ended stays as it is.

    ``draft_length`` (traced; one number or one a row) bounds this round's guesses below ``config.draft_length``; it
    must not depend on tokens that are yet to be verified.

    Raises:
        ValueError: the state was made by `init` for another draft length, or the rule is not for its temperatures.
    """
    check_step(state, drafter, config)
    drafting = (target, target_params, drafter, drafter_params)
    return step_by(RULES[config.rule], *drafting, state, config=config, draft_length=draft_length)


def step_by(
    rule: Rule,
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    state: GenerateState,
    *,
    config: GenerateConfig,
    draft_length: Int[Array, "*b"] | int | None = None,
) -> tuple[GenerateState, Round]:
    """`step` by a rule that need not have a name."""
    proposal, state = propose(rule, drafter, drafter_params, state, config=config, draft_length=draft_length)

    def verify(width: int, state: GenerateState) -> tuple[GenerateState, Round]:
        return judge(rule, target, target_params, drafter, drafter_params, state, proposal, width)[:2]

    return _wide_enough(widths_of(drafter, config), verify, state, proposal)


def widths_of(drafter: Drafter | None, config: GenerateConfig) -> tuple[int, ...]:
    """The verify widths that a round may have: plain decoding scores one token."""
    return (1,) if drafter is None else config.widths


class Evidence(NamedTuple):
    """What a verdict rests on: the arguments of the rule, and what it said. Dead code to the compiler where unused."""

    keys: RoundKeys
    proposal: Proposal
    p: Float[Array, "B T V"]
    """T is the width of the pass, one more than the guesses in it."""
    verdict: Verdict


def propose(
    rule: Rule,
    drafter: Drafter | None,
    drafter_params: PyTree,
    state: GenerateState,
    *,
    config: GenerateConfig,
    draft_length: Int[Array, "*b"] | int | None = None,
) -> tuple[Proposal, GenerateState]:
    """The first half of a round: the drafter's guesses, and the state with what it keeps of having made them."""
    if drafter is None:
        zero = jnp.zeros_like(state.lengths)
        return Proposal(zero[:, None][:, :0], None, zero), state
    running = state.finish_reason == FinishReason.RUNNING
    draw = partial(rule.draw, RoundKeys(state.keys, state.lengths))
    K = config.draft_length
    limit = jnp.asarray(K if draft_length is None else draft_length, jnp.int32)
    limit = jnp.where(running, jnp.clip(limit, 0, K), 0)
    memory = state.target_cache if drafter.shares_cache else state.drafter_state
    proposal, memory = drafter.propose(drafter_params, memory, _context(state), K, limit, draw)
    if drafter.shares_cache:
        return proposal, dataclasses.replace(state, target_cache=memory)
    return proposal, dataclasses.replace(state, drafter_state=memory)


def judge(
    rule: Rule,
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    state: GenerateState,
    proposal: Proposal,
    width: int,
) -> tuple[GenerateState, Round, Evidence]:
    """The second half of a round: the target scores the guesses, the rule judges them, and its verdict is committed.

    A pass scores ``width`` tokens of a row: the last committed one, which the target's cache misses, and guesses.
    """
    running = state.finish_reason == FinishReason.RUNNING
    keys = RoundKeys(state.keys, state.lengths)
    guesses = proposal.tokens[:, : width - 1]
    q = None if proposal.q is None else proposal.q[:, : width - 1]
    last = jnp.take_along_axis(state.tokens, state.lengths[:, None] - 1, axis=1)
    fed = jnp.concatenate([last, guesses], axis=1)
    logits, hidden, cache = target.apply(target_params, fed, state.target_cache, state.lengths - 1)
    if logits.shape != (*fed.shape, target.vocab_size):
        raise ValueError(
            f"the target's apply gave logits of shape {logits.shape}; expected {(*fed.shape, target.vocab_size)}, for "
            f"every token fed one score a token of its vocab_size, {target.vocab_size}"
        )
    logits, first_broken = _sound(logits)
    p = probabilities(logits, state.sampling)
    # A guess after a broken distribution is not proposed. Its predecessors broke it, not its own value: still exact.
    sound = Proposal(guesses, q, jnp.minimum(proposal.length, first_broken))
    verdict = rule.verify(keys, sound, p)

    state = dataclasses.replace(state, target_cache=cache)
    state, info = _commit(state, running, proposal, verdict, first_broken, logits, p)
    if drafter is not None:
        drafter_state = drafter.commit(drafter_params, state.drafter_state, _context(state), hidden)
        state = dataclasses.replace(state, drafter_state=drafter_state)
    return state, info, Evidence(keys, sound, p, verdict)


def _wide_enough(
    widths: tuple[int, ...],
    verify: Callable[[int, GenerateState], tuple[GenerateState, Round]],
    state: GenerateState,
    proposal: Proposal,
) -> tuple[GenerateState, Round]:
    """Run ``verify`` once, at the smallest width that holds all guesses.

    Each width has a loop of its own, which runs once or not at all: a conditional would copy the cache.
    """
    if len(widths) == 1:
        return verify(widths[0], state)
    needed = jnp.clip(1 + proposal.length.max(), 1, widths[-1])
    zero = jnp.zeros_like(state.lengths)
    carry = state, Round(proposal.tokens, zero, zero, zero, zero)
    for narrower, width in zip((0, *widths), widths, strict=False):
        due = (narrower < needed) & (needed <= width)
        carry = lax.fori_loop(0, due.astype(jnp.int32), lambda _, carry, width=width: verify(width, carry[0]), carry)
    return carry


def _context(state: GenerateState) -> Context:
    return Context(state.tokens, state.lengths, state.sampling)


def _sound(logits: Float[Array, "B T V"]) -> tuple[Float[Array, "B T V"], Int[Array, "B"]]:
    """The logits with broken places flattened to zeros, and the first such place of each row (T where none is)."""
    logits = logits.astype(jnp.float32)
    broken = jnp.isnan(logits).any(-1) | jnp.isinf(logits.max(-1))
    return jnp.where(broken[:, :, None], 0, logits), _first(broken)


def _first(mask: Bool[Array, "B T"]) -> Int[Array, "B"]:
    """The first True of each row, T where there is none."""
    T = mask.shape[1]
    return jnp.where(mask, jnp.arange(T, dtype=jnp.int32)[None, :], T).min(axis=1)


def _commit(
    state: GenerateState,
    running: Bool[Array, "B"],
    proposal: Proposal,
    verdict: Verdict,
    first_broken: Int[Array, "B"],
    logits: Float[Array, "B T V"],
    p: Float[Array, "B T V"],
) -> tuple[GenerateState, Round]:
    """Emit the kept guesses and the next token, up to an end token, a limit, or a distribution that is broken."""
    accepted = verdict.num_accepted
    width = p.shape[1]
    place = jnp.arange(width, dtype=jnp.int32)[None, :]
    guesses = jnp.pad(proposal.tokens, ((0, 0), (0, 1)))[:, :width]
    block = jnp.where(place == accepted[:, None], verdict.next_token[:, None], guesses)

    is_broken = accepted == first_broken  # then there is no next token
    count = jnp.where(is_broken, accepted, accepted + 1)
    end = _first((block[:, :, None] == state.eos_tokens[None, None, :]).any(-1))
    count = jnp.where(running, jnp.minimum(count, jnp.minimum(end + 1, state.left)), 0)
    lengths = state.lengths + count

    reason = jnp.where(is_broken & (count == accepted), FinishReason.NAN, FinishReason.RUNNING)
    reason = jnp.where(lengths >= state.room, FinishReason.CAPACITY, reason)
    reason = jnp.where(lengths >= state.token_limit, FinishReason.LENGTH, reason)
    reason = jnp.where(count == end + 1, FinishReason.END_TOKEN, reason)
    reason = jnp.where(running, reason, state.finish_reason).astype(jnp.int32)

    kept = jnp.where(running, jnp.minimum(accepted, count), 0)
    guess_place = jnp.arange(proposal.tokens.shape[1], dtype=jnp.int32)[None, :]
    drafted_at = running[:, None] & (guess_place < proposal.length[:, None])
    accepted_at = drafted_at & (guess_place < kept[:, None])

    rows = jnp.arange(block.shape[0])[:, None]
    slot = jnp.where(place < count[:, None], state.lengths[:, None] + place, state.tokens.shape[1])

    def write(buffer, values):  # what is not emitted has a slot out of range, and is dropped
        return buffer.at[rows, slot].set(values, mode="drop")

    def of_block(values):
        return jnp.take_along_axis(values, block[:, :, None], axis=2)[:, :, 0]

    stats = state.stats
    state = dataclasses.replace(
        state,
        tokens=write(state.tokens, block),
        lengths=lengths,
        finish_reason=reason,
        stats=Stats(
            rounds=stats.rounds + running.astype(jnp.int32),
            drafted=stats.drafted + drafted_at.sum(axis=1, dtype=jnp.int32),
            accepted=stats.accepted + kept,
            drafted_at=stats.drafted_at + drafted_at.astype(jnp.int32),
            accepted_at=stats.accepted_at + accepted_at.astype(jnp.int32),
        ),
        logprobs=Logprobs(
            raw=write(state.logprobs.raw, of_block(logits) - jax.nn.logsumexp(logits, axis=-1)),
            sampled=write(state.logprobs.sampled, jnp.log(of_block(p))),
        ),
    )
    info = Round(
        guesses=proposal.tokens,
        num_drafted=drafted_at.sum(axis=1, dtype=jnp.int32),
        num_accepted=kept,
        num_committed=count,
        next_token=verdict.next_token,
    )
    return state, info

"""Whether a drafter keeps the contract of `Drafter`, on which exactness rests."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import PyTree
from ..drafters import Drafter
from ..lm import LanguageModel
from ..sampling import SamplingParams, probabilities
from ..state import FinishReason, GenerateConfig, GenerateState
from .contracts import broken, same_form
from .drafter_trial import ROWS, Guesses, Trial, drawn, host
from .equality import Pair, answers, equality

_ROUNDS, _CAPACITY = 6, 40
_UNSEEN = 1e-6
"""A difference of q that is rounding whatever q is, such as where a cut leaves a token out."""


def check_drafter(
    drafter: Drafter,
    drafter_params: PyTree,
    target: LanguageModel,
    target_params: PyTree,
    *,
    draft_length: int = 3,
    seed: int = 0,
    tolerance: float = 1e-3,
) -> None:
    """Let a drafter guess for a target, look at every proposal, and name what is not as the contract has it.

    Args:
        drafter, drafter_params: what is checked.
        target, target_params: whom it drafts for; `check_language_model` checks that.
        draft_length: K.
        seed: of prompts and draws.
        tolerance: by which logits may differ between ways to come to the same tokens, and so log q by twice as much;
            raise it for bfloat16. Within it a stop that looks at q may decide otherwise, and a token that ties may be
            another.

    Raises:
        BrokenContractError: with the contract that is broken, and what was seen.
        ValueError: no guess was made.
    """
    if drafter.vocab_size not in (None, target.vocab_size):
        broken(
            "vocab_size is the target's, or None for a drafter that copies tokens",
            f"it is {drafter.vocab_size}, and the target's {target.vocab_size}",
        )
    room = _CAPACITY if target.max_positions is None else min(_CAPACITY, target.max_positions)
    # One verify width, so that a state which changes its form in commit is seen here and not by a loop of the round.
    widths = (draft_length + 1,)
    config = GenerateConfig(room, draft_length, rule="token", prefill_chunk=4, verify_widths=widths)
    trial = Trial(drafter, drafter_params, target, target_params, config, seed)
    state = trial.start(*trial.prompts())
    same_form("propose returns its state in the form it was given", trial.memory(state), trial.propose(state)[1])
    for number in range(_ROUNDS):
        # Full rounds, and rounds in which some rows or all of them draft little or nothing.
        limit = jnp.asarray([draft_length, number % (draft_length + 1), 0 if number in (2, 3) else draft_length, 1])
        _check_proposal(trial, state)
        after = trial.round(state, limit.astype(jnp.int32))
        same_form("commit returns its state in the form it was given", state.drafter_state, after.drafter_state)
        state = after
        _check_against_fresh(trial, state, tolerance)
    if not np.asarray(state.stats.drafted).any():
        raise ValueError(
            f"the drafter made no guess in {_ROUNDS} rounds, so there was nothing to check; expected one that guesses "
            "after any tokens, so build it without a stop, or with one that lets guesses pass"
        )
    _check_sampling(trial, state)
    _check_rows(trial, tolerance)
    _check_output(trial, tolerance)


def _check_proposal(trial: Trial, state: GenerateState) -> None:
    K, V = trial.K, trial.V
    limit = np.array([K, max(K - 1, 0), 1, 0])
    made = trial.propose(state, limit)
    got = host(made[0])
    if got.tokens.shape != (ROWS, K) or got.length.shape != (ROWS,):
        broken(
            f"a proposal has tokens [B, K] and length [B], here [{ROWS}, {K}] and [{ROWS}]",
            f"they are {list(got.tokens.shape)} and {list(got.length.shape)}",
        )
    if (got.length < 0).any() or (got.length > limit).any():
        broken("a row gets from 0 to limit guesses", f"for the limits {limit} the lengths are {got.length}")
    proposed = np.arange(K)[None] < got.length[:, None]
    if not ((got.tokens >= 0) & (got.tokens < V))[proposed].all():
        broken(f"guesses are token ids from 0 to {V - 1}", f"some are not: {got.tokens[proposed]}")
    if got.q is None:
        return
    if got.q.shape != (ROWS, K, V) or got.q.dtype != np.float32:
        broken(f"q is float32[B, K, V], here [{ROWS}, {K}, {V}]", f"it is {got.q.dtype}{list(got.q.shape)}")
    q = got.q[proposed]
    if not ((q >= 0).all() and np.allclose(q.sum(-1), 1, atol=1e-3)):
        broken("q is a distribution: nothing negative, sum 1", f"its sums are {q.sum(-1)} and its least is {q.min()}")
    drawn(made)
    _check_blindness(trial, state)


def _check_blindness(trial: Trial, state: GenerateState) -> None:
    """Whether guess i is made, and its q, may depend on guesses before it, never on what is drawn for it or later."""
    base = drawn(trial.propose(state))
    for place in range(trial.K):
        weights = trial.weights.copy()
        weights[place] = 1 / weights[place]
        other = drawn(trial.propose(state, weights=weights))
        same = [(other.tokens[:, :i] == base.tokens[:, :i]).all(axis=1) for i in range(place + 1)]
        for i in range(place + 1):
            both = same[i] & (np.minimum(base.length, other.length) > i)
            if base.q is None or other.q is None:
                break
            if (other.q[both, i].view(np.uint32) != base.q[both, i].view(np.uint32)).any():
                broken(
                    "q of a guess does not depend on what is drawn for it or later",
                    f"another draw of guess {place} changed q of guess {i}",
                )
        before = same[place]
        if ((other.length > place) != (base.length > place))[before].any():
            broken(
                "whether a guess is made does not depend on the value drawn for it",
                f"another draw of guess {place} changed whether it counts: lengths {base.length} and {other.length}",
            )


def _check_against_fresh(trial: Trial, state: GenerateState, tolerance: float) -> None:
    """After any rounds, a drafter guesses as one that reads the committed tokens for the first time."""
    running = np.asarray(state.finish_reason) == FinishReason.RUNNING
    tokens, lengths = np.asarray(state.tokens)[:, : trial.config.capacity], np.asarray(state.lengths)
    fresh = trial.start(np.where(np.arange(tokens.shape[1]) < lengths[:, None], tokens, 0), lengths)
    contract = "after commit, guesses follow from the committed tokens alone, as for a drafter that starts with them"
    got, wanted = (drawn(trial.propose(one)).of(running) for one in (state, fresh))
    _same_guesses(contract, got, wanted, lambda: _nearly(trial, fresh, tolerance)[:, running], tolerance)


def _same_guesses(
    contract: str, got: Guesses, wanted: Guesses, nearly: Callable[[], np.ndarray], tolerance: float
) -> None:
    """The same tokens lead to the same guesses, to ``tolerance``; ``nearly`` gives lengths [N, B] that ties excuse.

    A guess is compared where those before it are the same: past one that ties, others follow from other tokens.
    """
    both = np.minimum(got.length, wanted.length)[:, None]
    place = np.arange(got.tokens.shape[1])[None]
    same = np.logical_and.accumulate((got.tokens == wanted.tokens) | (place >= both), axis=1)
    follows = np.pad(same, ((0, 0), (1, 0)), constant_values=True)[:, :-1] & (place < both)
    if got.q is not None and wanted.q is not None:
        _close_q(contract, got.q[follows], wanted.q[follows], tolerance)
    elif (other := follows & ~same).any():
        broken(contract, f"it guessed {got.tokens[other]} instead of {wanted.tokens[other]}")
    odd = (got.length != wanted.length) & same.all(axis=1)
    if odd.any() and wanted.q is not None:
        lengths = np.vstack([wanted.length, nearly()])
        odd &= (got.length < lengths.min(axis=0)) | (got.length > lengths.max(axis=0))
    if odd.any():
        broken(contract, f"it made {got.length[odd]} guesses instead of {wanted.length[odd]}")


def _close_q(contract: str, got: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """As near as a softmax of logits that differ by ``tolerance``: the sum that divides it moves as far again."""
    apart = np.abs(got - wanted)
    far = apart > np.expm1(2 * tolerance) * np.minimum(got, wanted) + _UNSEEN
    if far.any():
        at = np.argmax(np.where(far, apart, 0))
        broken(
            contract,
            f"q of some token is {got.flat[at]:.3g} instead of {wanted.flat[at]:.3g}, more than logits within "
            f"{tolerance:g} make it",
        )


def _nearly(trial: Trial, state: GenerateState, tolerance: float) -> np.ndarray:
    """Lengths [2, B] where logits are smaller and larger by a share of ``tolerance``, as temperature makes them: a stop
    that q passes, or does not, by no more than this decides otherwise."""

    def at(factor: float) -> np.ndarray:
        sampling = state.sampling._replace(temperature=state.sampling.temperature * np.float32(factor))
        return np.asarray(trial.propose(dataclasses.replace(state, sampling=sampling))[0].length)

    return np.stack([at(np.exp(by)) for by in (tolerance, -tolerance)])


def _check_sampling(trial: Trial, state: GenerateState) -> None:
    """q is the draft distribution after the row's own transforms. The first guess shows them in full, for whatever they
    are, the tokens before it are the same."""
    contract = "q is the distribution after the transforms of context.sampling"
    cut = SamplingParams(
        temperature=jnp.asarray([0.0, 0.7, 2.0, 1.0]),
        top_k=jnp.asarray([0, 2, 0, 0]),
        top_p=jnp.asarray([1.0, 1.0, 0.8, 1.0]),
        min_p=jnp.asarray([0.0, 0.0, 0.0, 0.3]),
    )
    whole, got = (
        drawn(trial.propose(dataclasses.replace(state, sampling=sampling.broadcast(ROWS))))
        for sampling in (SamplingParams(), cut)
    )
    if got.q is None or whole.q is None:
        return
    for q in got.q[0, : got.length[0]]:
        if (q > 0).sum() > 1:
            broken(contract, f"with temperature 0, {int((q > 0).sum())} tokens are possible")
    logits = jnp.log(whole.q[:, :1])
    # A token at the edge of a cut may be in or out, by rounding.
    wanted = np.stack([probabilities(logits, edge)[:, 0] for edge in _edges(cut)])
    error = np.abs(got.q[:, 0] - wanted).max(axis=-1).min(axis=0)
    wrong = (error > 1e-3) & (got.length > 0) & (whole.length > 0) & (cut.temperature > 0)
    if wrong.any():
        row = np.flatnonzero(wrong)[0]
        values = {name: float(value[row]) for name, value in cut._asdict().items()}
        broken(contract, f"with {values} q differs by {error[row]:.2e} from what it is without, transformed")


def _edges(cut: SamplingParams) -> list[SamplingParams]:
    """The values, and a little less and more of each cut."""
    return [cut._replace(top_p=cut.top_p * by, min_p=cut.min_p * by) for by in (1, 1 - 1e-4, 1 + 1e-4)]


def _check_rows(trial: Trial, tolerance: float) -> None:
    tokens, lengths = trial.prompts()
    together = drawn(trial.propose(trial.start(tokens, lengths)))
    for row in range(ROWS):
        part = slice(row, row + 1)
        alone = trial.start(tokens[part], lengths[part])
        _same_guesses(
            f"rows do not depend on each other: with the others, as alone, row {row} has its guesses",
            together.of(part),
            drawn(trial.propose(alone)),
            lambda alone=alone: _nearly(trial, alone, tolerance),
            tolerance,
        )


def _check_output(trial: Trial, tolerance: float) -> None:
    """Under the coupled rule the output is a function of target and key alone, but for ties."""
    contract = "under the coupled rule the output is that of plain decoding"
    tokens, lengths = trial.prompts()
    keys = jax.random.split(jax.random.key(trial.seed), ROWS)
    drafted = Pair(trial.target, trial.target_params, trial.drafter, trial.drafter_params)
    plain = drafted._replace(drafter=None, drafter_params=None)
    got, wanted = (
        answers(
            pair,
            tokens,
            lengths,
            rule="coupled",
            keys=keys,
            temperature=1.0,
            config=trial.config,
            max_new_tokens=trial.config.capacity,
            batch=ROWS,
        )
        for pair in (drafted, plain)
    )
    found = equality(plain, tokens, lengths, got, wanted, keys=keys, temperature=1.0, width=trial.K + 1)
    for one in found.differences:
        if not (one.is_tie or abs(one.gap) <= tolerance):
            broken(contract, f"new token {one.place} of row {one.row} is another, by {one.gap:.1e} and no tie")
    for one in found.endings:
        broken(contract, str(one))
    if not found.tokens:
        broken(contract, "nothing came out: the target's logits are NaN or infinite")

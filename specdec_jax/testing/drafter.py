"""Whether a drafter keeps the contract of `Drafter`, on which exactness rests."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, PyTree
from ..control import constant
from ..drafters import Context, Drafter
from ..generate import generate, init
from ..lm import LanguageModel
from ..round import step
from ..sampling import SamplingParams
from ..sampling.draw import first_argmax
from ..state import FinishReason, GenerateConfig, GenerateState
from ..verify import Proposal
from .contracts import broken, close, same_form

_ROWS, _ROUNDS, _PROMPT, _CAPACITY = 4, 6, 7, 40


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
        tolerance: by which q may differ between ways to come to the same tokens; raise it for bfloat16.

    Raises:
        BrokenContractError: with the contract that is broken, and what was seen.
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
    trial = _Trial(drafter, drafter_params, target, target_params, config, seed)
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
    _check_sampling(trial, state)
    _check_rows(trial, tolerance)
    _check_output(trial)


class _Trial:
    """A drafter with its target, and the compiled programs that the checks run."""

    def __init__(self, drafter, drafter_params, target, target_params, config: GenerateConfig, seed: int):
        self.drafter, self.drafter_params = drafter, drafter_params
        self.target, self.target_params = target, target_params
        self.config, self.seed = config, seed
        self.K, self.V = config.draft_length, target.vocab_size
        self.weights = np.random.default_rng(seed).uniform(0.5, 2.0, (self.K, self.V)).astype(np.float32)
        self._propose = jax.jit(self._guess)
        self._start = jax.jit(self._init)
        self._step = jax.jit(partial(step, target, config=config), static_argnums=1)

    def prompts(self) -> tuple[np.ndarray, np.ndarray]:
        """Few different tokens, so that something repeats; a row of one token among them."""
        rng = np.random.default_rng(self.seed)
        lengths = np.array([1, _PROMPT, 2, 5], np.int32)
        tokens = np.zeros((_ROWS, self.config.capacity), np.int32)
        tokens[:, :_PROMPT] = rng.integers(0, min(3, self.V), (_ROWS, _PROMPT))
        return tokens, lengths

    def start(self, tokens, lengths, sampling: SamplingParams | None = None) -> GenerateState:
        keys = jax.random.split(jax.random.key(self.seed), len(lengths))
        values = SamplingParams() if sampling is None else sampling
        params = (self.target_params, self.drafter_params)
        return self._start(*params, jnp.asarray(tokens), jnp.asarray(lengths), keys, values.broadcast(len(lengths)))

    def _init(self, target_params, drafter_params, tokens, lengths, keys, sampling):
        return init(  # with params as arguments: a program would hold its own as constants
            self.target,
            target_params,
            self.drafter,
            drafter_params,
            tokens,
            lengths,
            key=keys,
            sampling=sampling,
            config=self.config,
        )

    def round(self, state: GenerateState, limit: Array) -> GenerateState:
        return self._step(self.target_params, self.drafter, self.drafter_params, state, draft_length=limit)[0]

    def memory(self, state: GenerateState) -> PyTree:
        return state.target_cache if self.drafter.shares_cache else state.drafter_state

    def propose(
        self, state: GenerateState, limit=None, weights: np.ndarray | None = None
    ) -> tuple[Proposal, PyTree, "_Drawn"]:
        """Guesses drawn as the likeliest of q times ``weights`` [K, V], which q alone decides; and what was drawn."""
        batch = state.lengths.shape[0]
        limit = np.full(batch, self.K) if limit is None else limit
        return self._propose(
            self.drafter_params,
            self.memory(state),
            Context(state.tokens, state.lengths, state.sampling),
            jnp.asarray(limit, jnp.int32),
            jnp.asarray(self.weights if weights is None else weights),
        )

    def _guess(self, params, memory, context, limit, weights):
        batch = limit.shape[0]
        # Refs, for draw may be called within loops; no distribution holds NaN, and no token is -1.
        given = jax.new_ref(jnp.full((batch, self.K, self.V), jnp.nan, jnp.float32))
        drawn = jax.new_ref(jnp.full((batch, self.K), -1, jnp.int32))

        def draw(index, q):
            token = first_argmax(q * jax.lax.dynamic_slice_in_dim(weights, index, 1))
            given[:, index], drawn[:, index] = q.astype(jnp.float32), token
            return token

        proposal, memory = self.drafter.propose(params, memory, context, self.K, limit, draw)
        return proposal, memory, _Drawn(jax.freeze(given), jax.freeze(drawn))


class _Drawn(NamedTuple):
    """The last call of ``draw`` for each guess."""

    q: Array
    """[B, K, V] as it was given; NaN where it was not called."""
    tokens: Array
    """[B, K] as it gave them back; -1 where it was not called."""


class _Guesses(NamedTuple):
    """A proposal on the host."""

    tokens: np.ndarray
    q: np.ndarray | None
    length: np.ndarray


def _host(proposal: Proposal) -> _Guesses:
    q = None if proposal.q is None else np.asarray(proposal.q)
    return _Guesses(np.asarray(proposal.tokens), q, np.asarray(proposal.length))


def _drawn(made: tuple[Proposal, PyTree, _Drawn]) -> _Guesses:
    """The proposal on the host, once each guess with a q is known to come from ``draw``, and from that very q."""
    got = _host(made[0])
    if got.q is None:
        return got
    given, tokens = (np.asarray(part) for part in made[2])
    proposed = np.arange(got.tokens.shape[1])[None] < got.length[:, None]
    another = (got.q.view(np.uint32) != given.view(np.uint32)).any(-1) & proposed
    if another.any():
        row, place = np.argwhere(another)[0]
        error = np.abs(got.q[row, place] - given[row, place]).max()
        seen = "draw was not called for it" if np.isnan(error) else f"it differs by up to {error:.2e}"
        broken("q is, bit for bit, what draw was given", f"for guess {place} of row {row} {seen}")
    if (got.tokens != tokens)[proposed].any():
        broken("a guess is the token that draw gave back", f"{got.tokens[proposed]} is not {tokens[proposed]}")
    return got


def _check_proposal(trial: _Trial, state: GenerateState) -> None:
    K, V = trial.K, trial.V
    limit = np.array([K, max(K - 1, 0), 1, 0])
    made = trial.propose(state, limit)
    got = _host(made[0])
    if got.tokens.shape != (_ROWS, K) or got.length.shape != (_ROWS,):
        broken(
            f"a proposal has tokens [B, K] and length [B], here [{_ROWS}, {K}] and [{_ROWS}]",
            f"they are {list(got.tokens.shape)} and {list(got.length.shape)}",
        )
    if (got.length < 0).any() or (got.length > limit).any():
        broken("a row gets from 0 to limit guesses", f"for the limits {limit} the lengths are {got.length}")
    proposed = np.arange(K)[None] < got.length[:, None]
    if not ((got.tokens >= 0) & (got.tokens < V))[proposed].all():
        broken(f"guesses are token ids from 0 to {V - 1}", f"some are not: {got.tokens[proposed]}")
    if got.q is None:
        return
    if got.q.shape != (_ROWS, K, V) or got.q.dtype != np.float32:
        broken(f"q is float32[B, K, V], here [{_ROWS}, {K}, {V}]", f"it is {got.q.dtype}{list(got.q.shape)}")
    q = got.q[proposed]
    if not ((q >= 0).all() and np.allclose(q.sum(-1), 1, atol=1e-3)):
        broken("q is a distribution: nothing negative, sum 1", f"its sums are {q.sum(-1)} and its least is {q.min()}")
    _drawn(made)
    _check_blindness(trial, state)


def _check_blindness(trial: _Trial, state: GenerateState) -> None:
    """Whether guess i is made may depend on q, and on guesses before it, never on the value drawn for it."""
    base = _drawn(trial.propose(state))
    for place in range(trial.K):
        weights = trial.weights.copy()
        weights[place] = 1 / weights[place]
        other = _drawn(trial.propose(state, weights=weights))
        before = (other.tokens[:, :place] == base.tokens[:, :place]).all(axis=1)
        if ((other.length > place) != (base.length > place))[before].any():
            broken(
                "whether a guess is made does not depend on the value drawn for it",
                f"another draw of guess {place} changed whether it counts: lengths {base.length} and {other.length}",
            )


def _check_against_fresh(trial: _Trial, state: GenerateState, tolerance: float) -> None:
    """After any rounds, a drafter guesses as one that reads the committed tokens for the first time."""
    running = np.asarray(state.finish_reason) == FinishReason.RUNNING
    tokens, lengths = np.asarray(state.tokens)[:, : trial.config.capacity], np.asarray(state.lengths)
    fresh = trial.start(np.where(np.arange(tokens.shape[1]) < lengths[:, None], tokens, 0), lengths)
    got, wanted = (_drawn(trial.propose(one)) for one in (state, fresh))
    contract = "after commit, guesses follow from the committed tokens alone, as for a drafter that starts with them"
    if (got.length != wanted.length)[running].any():
        broken(contract, f"it made {got.length[running]} guesses instead of {wanted.length[running]}")
    first = running & (got.length > 0)  # later guesses depend on what was drawn before, and ties may fall either way
    if got.q is None:
        if (got.tokens != wanted.tokens)[first].any():
            broken(contract, f"it guessed {got.tokens[first]} instead of {wanted.tokens[first]}")
    elif wanted.q is not None:
        close(contract, got.q[first, 0], wanted.q[first, 0], tolerance)


def _check_sampling(trial: _Trial, state: GenerateState) -> None:
    """q is the draft distribution after the row's own transforms."""
    cut = SamplingParams(temperature=jnp.asarray([0.0, 1.0, 1.0, 1.0]), top_k=jnp.asarray([0, 1, 2, 0]))
    state = dataclasses.replace(state, sampling=cut.broadcast(_ROWS))
    got = _drawn(trial.propose(state))
    if got.q is None:
        return
    for row, (most, values) in enumerate([(1, "temperature 0"), (1, "top_k 1"), (2, "top_k 2")]):
        for q in got.q[row, : got.length[row]]:
            above = int((q > q[q > 0].min()).sum())  # top_k keeps all that tie for the last place
            if above >= most or (row == 0 and (q > 0).sum() > 1):
                broken(
                    "q is the distribution after the transforms of context.sampling",
                    f"with {values}, {int((q > 0).sum())} tokens are possible",
                )


def _check_rows(trial: _Trial, tolerance: float) -> None:
    tokens, lengths = trial.prompts()
    together = _drawn(trial.propose(trial.start(tokens, lengths)))
    for row in range(_ROWS):
        part = slice(row, row + 1)
        alone = _drawn(trial.propose(trial.start(tokens[part], lengths[part])))
        contract = "rows do not depend on each other"
        if alone.length[0] != together.length[row]:
            broken(contract, f"row {row} got {together.length[row]} guesses, and {alone.length[0]} alone")
        if alone.q is not None and together.q is not None and alone.length[0]:
            close(contract, together.q[row, 0], alone.q[0, 0], tolerance)


def _check_output(trial: _Trial) -> None:
    """Under the coupled rule the output is a function of target and key alone."""
    tokens, lengths = trial.prompts()

    def run(drafter, params):
        return generate(
            trial.target,
            trial.target_params,
            drafter,
            params,
            tokens,
            lengths,
            key=jax.random.key(trial.seed),
            config=dataclasses.replace(trial.config, rule="coupled"),
            controller=constant(),
        )

    drafted, plain = run(trial.drafter, trial.drafter_params), run(None, None)
    if (np.asarray(drafted.tokens) != np.asarray(plain.tokens)).any():
        row, place = np.argwhere(np.asarray(drafted.tokens) != np.asarray(plain.tokens))[0]
        broken(
            "under the coupled rule the output is that of plain decoding",
            f"new token {place} of row {row} is another",
        )

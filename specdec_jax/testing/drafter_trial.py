"""A drafter at work under a watch: what it was given, what it drew, and what it proposed."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, PyTree
from ..drafters import Context
from ..generate import init
from ..round import step
from ..sampling import SamplingParams
from ..sampling.draw import first_argmax
from ..state import GenerateConfig, GenerateState
from ..verify import Proposal
from .contracts import broken

ROWS = 4
"""Of a trial's batch."""
_PROMPT = 7


class Trial:
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
        tokens = np.zeros((ROWS, self.config.capacity), np.int32)
        tokens[:, :_PROMPT] = rng.integers(0, min(3, self.V), (ROWS, _PROMPT))
        return tokens, lengths

    def start(self, tokens, lengths, sampling: SamplingParams | None = None) -> GenerateState:
        """The state before the first round."""
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
        """The state after a round of up to ``limit`` guesses."""
        return self._step(self.target_params, self.drafter, self.drafter_params, state, draft_length=limit)[0]

    def memory(self, state: GenerateState) -> PyTree:
        """What the drafter proposes from."""
        return state.target_cache if self.drafter.shares_cache else state.drafter_state

    def propose(
        self, state: GenerateState, limit=None, weights: np.ndarray | None = None
    ) -> tuple[Proposal, PyTree, "Drawn"]:
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
        calls = jax.new_ref(jnp.zeros(self.K, jnp.int32))

        def draw(index, q):
            calls[index] += 1
            token = first_argmax(q * jax.lax.dynamic_slice_in_dim(weights, index, 1))
            given[:, index], drawn[:, index] = q.astype(jnp.float32), token
            return token

        proposal, memory = self.drafter.propose(params, memory, context, self.K, limit, draw)
        return proposal, memory, Drawn(jax.freeze(given), jax.freeze(drawn), jax.freeze(calls))


class Drawn(NamedTuple):
    """The last call of ``draw`` for each guess."""

    q: Array
    """[B, K, V] as it was given; NaN where it was not called."""
    tokens: Array
    """[B, K] as it gave them back; -1 where it was not called."""
    calls: Array
    """[K]: how often it was called."""


class Guesses(NamedTuple):
    """A proposal on the host."""

    tokens: np.ndarray
    q: np.ndarray | None
    length: np.ndarray

    def of(self, rows: np.ndarray | slice) -> "Guesses":
        """Those of some rows."""
        return Guesses(self.tokens[rows], None if self.q is None else self.q[rows], self.length[rows])


def host(proposal: Proposal) -> Guesses:
    """The proposal on the host."""
    q = None if proposal.q is None else np.asarray(proposal.q)
    return Guesses(np.asarray(proposal.tokens), q, np.asarray(proposal.length))


def drawn(made: tuple[Proposal, PyTree, Drawn]) -> Guesses:
    """The proposal on the host, once each guess with a q is known to come from ``draw``, and from that very q."""
    got = host(made[0])
    if got.q is None:
        return got
    given, tokens, calls = (np.asarray(part) for part in made[2])
    if (calls > 1).any():
        broken(
            "draw is called once for a guess, which may then depend on no value drawn for it before",
            f"it was called {calls[calls > 1][0]} times for guess {np.flatnonzero(calls > 1)[0]}",
        )
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

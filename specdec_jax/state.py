"""What a generation is configured by, carries from round to round, and returns."""

import dataclasses
import enum
from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
import numpy as np

from ._typing import Array, Float, Int, Key, PyTree
from .sampling import SamplingParams
from .verify import RULES


class FinishReason(enum.IntEnum):
    """Why a row ended."""

    RUNNING = 0
    END_TOKEN = 1
    """It drew an end token, which is the last token of its output."""
    LENGTH = 2
    """It has its ``max_new_tokens``."""
    CAPACITY = 3
    """It is full: ``config.capacity`` or the target's ``max_positions`` tokens, prompt included."""
    NAN = 4
    """The target's logits were NaN, +inf or all -inf; what was drawn before them stands."""
    INVALID = 5
    """Its prompt was empty, longer than the row or held what is no token id, or its limit or sampling values were out
    of their range (only where these are traced; otherwise an error says so)."""


_MOST = 1 << 24
"""Slots, beyond which nobody has a model, and int32 would soon run over."""


@dataclasses.dataclass(frozen=True)
class GenerateConfig:
    """All that is static: a change compiles anew. Whatever else varies is traced."""

    capacity: int = 1024
    """Most tokens a row may hold, prompt included."""
    draft_length: int = 4
    """K, the most guesses in a round; without a drafter it has no effect."""
    rule: str = "block"
    """Acceptance rule: block (keeps most), token, coupled (same output for every drafter), or greedy."""
    prefill_chunk: int = 256
    """Prompt tokens read in one pass."""
    verify_widths: tuple[int, ...] = ()
    """Tokens that the target may score in one pass, ascending to draft_length + 1: a round takes the least that holds
    its guesses and one more. Each is a pass to compile. By default 1, half the widest where that is at least 4, and
    the widest."""

    def __post_init__(self):
        if not isinstance(self.rule, str) or self.rule not in RULES:
            raise ValueError(f"rule is {self.rule!r}; expected one of {', '.join(RULES)}")
        for name, least in (("capacity", 2), ("draft_length", 1), ("prefill_chunk", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < _MOST:
                raise ValueError(f"{name} is {value!r}; expected an integer from {least} to {_MOST - 1}")
        given, widest = self.verify_widths, self.draft_length + 1
        if not isinstance(given, tuple) or not all(isinstance(width, int) for width in given):
            raise ValueError(f"verify_widths is {given!r}; expected a tuple of integers")
        widths = self.widths
        if list(widths) != sorted(set(widths)) or widths[0] < 1 or widths[-1] != widest:
            raise ValueError(
                f"verify_widths is {self.verify_widths}; expected ascending widths of at least 1, the last of them "
                f"draft_length + 1, {widest}"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """The verify widths, given or by default."""
        widest = self.draft_length + 1
        half = widest // 2
        return self.verify_widths or ((1, half, widest) if half >= 4 else (1, widest))

    def slots(self, *, drafting: bool) -> int:
        """Of a row of a cache, a multiple of eight: the last block of a full row hangs over by its guesses."""
        return -(-(self.capacity + (self.draft_length if drafting else 0)) // 8) * 8


@flax.struct.dataclass
class Stats:
    """Counts a row; `summary` turns them into the metrics."""

    rounds: Int[Array, "B"]
    """Passes of the target in which the row took part."""
    drafted: Int[Array, "B"]
    accepted: Int[Array, "B"]
    """Guesses that were kept and emitted."""
    drafted_at: Int[Array, "B K"]
    accepted_at: Int[Array, "B K"]


@flax.struct.dataclass
class Logprobs:
    """Log-probabilities of the emitted tokens, 0 elsewhere."""

    raw: Float[Array, "B S"]
    """Under the model's own softmax, before any transform."""
    sampled: Float[Array, "B S"]
    """Under the distribution that was sampled from."""


@flax.struct.dataclass
class Generation:
    """What `generate` returns. S is ``config.capacity``."""

    tokens: Int[Array, "B S"]
    """New tokens from the left, 0 past a row's ``lengths``."""
    lengths: Int[Array, "B"]
    """New tokens of each row, its end token included."""
    finish_reason: Int[Array, "B"]
    """`FinishReason` values."""
    logprobs: Logprobs
    stats: Stats

    def summary(self) -> dict[str, int | float | list[float]]:
        """The metrics over all rows, on the host."""
        return summary(self.stats, self.lengths)


def summary(stats: Stats, new_tokens: Int[Array, "B"]) -> dict[str, int | float | list[float]]:
    """`metrics` of all rows together."""
    rounds, drafted, accepted, tokens = (
        int(np.sum(x)) for x in (stats.rounds, stats.drafted, stats.accepted, new_tokens)
    )
    drafted_at, accepted_at = (np.sum(x, axis=0).tolist() for x in (stats.drafted_at, stats.accepted_at))
    return metrics(tokens, rounds, drafted, accepted, drafted_at, accepted_at)


def metrics(
    tokens: int, rounds: int, drafted: int, accepted: int, drafted_at: Sequence[int], accepted_at: Sequence[int]
) -> dict[str, int | float | list[float]]:
    """``rounds``, ``drafted``, ``accepted``, ``acceptance_rate``, ``block_efficiency`` and ``accepted_at``.

    A ratio of nothing to nothing is NaN.
    """

    def ratio(part, whole) -> float:
        return float(part) / float(whole) if whole else float("nan")

    return {
        "rounds": rounds,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": ratio(accepted, drafted),
        "block_efficiency": ratio(tokens, rounds),
        "accepted_at": [ratio(kept, made) for kept, made in zip(accepted_at, drafted_at, strict=True)],
    }


@flax.struct.dataclass
class GenerateState:
    """The carry of the loop. W slots of tokens hold the capacity and the overhang of a last block."""

    # ---- what evolves ----
    tokens: Int[Array, "B W"]
    lengths: Int[Array, "B"]
    """Committed tokens, prompt included; the target's cache holds all but the last of them."""
    finish_reason: Int[Array, "B"]
    target_cache: PyTree
    drafter_state: PyTree

    # ---- what stays ----
    prompt_lengths: Int[Array, "B"]
    token_limit: Int[Array, "B"]
    """Length at which a row has all the tokens it was asked for."""
    room: Int[Array, "B"]
    """Length at which a row is full."""
    eos_tokens: Int[Array, "E"]
    sampling: SamplingParams
    keys: Key[Array, "B"]

    # ---- statistics ----
    stats: Stats

    # ---- output buffers, by slot ----
    logprobs: Logprobs

    @property
    def left(self) -> Int[Array, "B"]:
        """Tokens that a row may still get, 0 for one that has ended."""
        room = jnp.minimum(self.token_limit, self.room) - self.lengths
        return jnp.where(self.finish_reason == FinishReason.RUNNING, room, 0)

    def generation(self, capacity: int) -> Generation:
        """The new tokens so far, moved to the left."""
        place = jnp.arange(capacity, dtype=jnp.int32)[None, :]
        new = self.lengths - self.prompt_lengths
        slot = jnp.minimum(self.prompt_lengths[:, None] + place, self.tokens.shape[1] - 1)

        def moved(buffer):
            return jnp.where(place < new[:, None], jnp.take_along_axis(buffer, slot, axis=1), 0)

        return Generation(
            tokens=moved(self.tokens),
            lengths=new,
            finish_reason=self.finish_reason,
            logprobs=Logprobs(raw=moved(self.logprobs.raw), sampled=moved(self.logprobs.sampled)),
            stats=self.stats,
        )


@flax.struct.dataclass
class Round:
    """What happened in one round, for those who drive `step` themselves."""

    guesses: Int[Array, "B K"]
    num_drafted: Int[Array, "B"]
    num_accepted: Int[Array, "B"]
    """Guesses kept and emitted."""
    num_committed: Int[Array, "B"]
    """Tokens emitted: the kept guesses, and the next token unless the row ended before it."""
    next_token: Int[Array, "B"]

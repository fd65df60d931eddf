"""What a batch generator is asked and what it answers."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._inputs import check_rule
from ..sampling import SamplingParams
from ..state import FinishReason, GenerateConfig

_MOST = 2**31 - 1
_MOST_SEED = 2**32 - 1
_SAMPLING = SamplingParams()


@dataclasses.dataclass(frozen=True)
class Request:
    """One prompt."""

    index: int
    """Its place in the input, from 0: what its randomness comes from, and what it is known by on the disk."""
    token_ids: Sequence[int]
    sampling: SamplingParams = _SAMPLING
    """Numbers, not arrays."""
    max_new_tokens: int = _MOST
    seed: int | None = None
    """Of a key of its own; by default its key is the generator's, folded with ``index``."""
    source: Any = None
    """Whatever the caller wants to find in the answer."""


class Counts(NamedTuple):
    """What a row's tokens took; `specdec_jax.state.metrics` turns sums of them into the metrics."""

    tokens: int
    rounds: int
    drafted: int
    accepted: int
    drafted_at: Sequence[int]
    """[K]"""
    accepted_at: Sequence[int]
    """[K]"""


class Answer(NamedTuple):
    """What came of a request."""

    request: Request
    token_ids: list[int]
    """New tokens, the end token included."""
    finish_reason: FinishReason
    logprobs: list[float]
    """Of each token under the model's own softmax."""
    sampled_logprobs: list[float]
    """Of each token under the distribution that it was drawn from."""
    counts: Counts


@dataclasses.dataclass(frozen=True)
class Refused:
    """A prompt that cannot be answered. Among the requests it passes through, so that none goes missing."""

    index: int
    why: str
    """What was got, what was expected and what to do."""
    source: Any = None


def room(config: GenerateConfig, max_positions: int | None) -> int:
    """Tokens that a row may hold, its prompt included."""
    return config.capacity if max_positions is None else min(config.capacity, max_positions)


def check(request: Request, config: GenerateConfig, *, vocab_size: int, max_positions: int | None) -> None:
    """Raise a ValueError for what cannot be answered. Nothing here touches a device."""
    ids = request.token_ids
    if not len(ids):
        raise ValueError("the prompt has no tokens; expected at least one")
    for place, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise ValueError(f"token_ids[{place}] is {token}; expected a token id from 0 to {vocab_size - 1}")
    most = room(config, max_positions)
    if len(ids) >= most:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, but a row holds {most} with its answer; shorten the prompt"
            + (", or raise the capacity" if most == config.capacity else ": that is all that the target can read")
        )
    request.sampling.check()
    check_rule(config, request.sampling)
    bounds = (("index", request.index, _MOST), ("max_new_tokens", request.max_new_tokens, _MOST))
    for name, value, highest in (*bounds, ("seed", request.seed or 0, _MOST_SEED)):
        if not 0 <= value <= highest:
            raise ValueError(f"{name} is {value}; expected an integer from 0 to {highest}")

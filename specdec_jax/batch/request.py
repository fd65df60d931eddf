"""What a batch generator is asked and what it answers."""

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

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
    """Raise a ValueError for what cannot be answered. No device computes anything for it."""
    ids = request.token_ids
    if isinstance(ids, jax.Array):
        ids = np.asarray(ids)
    odd = isinstance(ids, str | bytes | bytearray) or not isinstance(ids, Sequence | np.ndarray)
    if odd or (isinstance(ids, np.ndarray) and ids.ndim != 1):
        raise ValueError(f"token_ids is of the type {type(ids).__name__}; expected a list of token ids")
    if not len(ids):
        raise ValueError("the prompt has no tokens; expected at least one")
    for place, token in enumerate(ids):
        if not _is_integer(token) or not 0 <= int(token) < vocab_size:
            raise ValueError(f"token_ids[{place}] is {token!r}; expected a token id from 0 to {vocab_size - 1}")
    most = room(config, max_positions)
    if len(ids) >= most:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, but a row holds {most} with its answer; shorten the prompt"
            + (", or raise the capacity" if most == config.capacity else ": that is all that the target can read")
        )
    if not isinstance(request.sampling, SamplingParams):
        raise ValueError(f"sampling is of the type {type(request.sampling).__name__}; expected SamplingParams")
    for name, value in request.sampling._asdict().items():
        if np.ndim(value):
            raise ValueError(f"{name} is {value!r}; expected a number, for a request is one row")
    request.sampling.check()
    check_rule(config, request.sampling)
    check_integer("index", request.index, 0, _MOST)
    check_integer("max_new_tokens", request.max_new_tokens, 0, _MOST)
    if request.seed is not None:
        check_integer("seed", request.seed, 0, _MOST_SEED)


def check_integer(name: str, value: Any, lowest: int, highest: int) -> None:
    """Raise a ValueError for what is no integer in this range; nothing is rounded."""
    if not _is_integer(value) or not lowest <= int(value) <= highest:
        raise ValueError(f"{name} is {value!r}; expected an integer from {lowest} to {highest}")


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)

"""Requests as arrays of a few static shapes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..sampling import SamplingParams
from ..state import GenerateConfig
from .request import Request

IDLE = Request(0, [0], SamplingParams(temperature=0.0), 0)
"""For a row that nobody asked for: one token, nothing to generate, and so nothing to read."""
UNFOLDED = -1
_LEAST_BUCKET = 64
_SAMPLING_DTYPES = [np.int32 if isinstance(value, int) else np.float32 for value in SamplingParams()]


class Prompts(NamedTuple):
    """R requests in NumPy arrays, which become a program's arguments without touching a device before."""

    tokens: np.ndarray
    """int32 [R, P]"""
    lengths: np.ndarray
    """int32 [R]"""
    seeds: np.ndarray
    """uint32 [R]"""
    folds: np.ndarray
    """int32 [R]: what the seed's key is folded with; -1: nothing."""
    sampling: SamplingParams
    """Arrays [R]."""
    max_new_tokens: np.ndarray
    """int32 [R]"""


def bucket(length: int, config: GenerateConfig) -> int:
    """Prompt slots for a prompt of ``length`` tokens: a power of two, and past one prefill chunk the whole capacity.

    Prompts of several chunks share the largest bucket: a compiled loop reads as many chunks as the longest needs.
    """
    if length > config.prefill_chunk:
        return config.capacity
    power = max(_LEAST_BUCKET, 1 << (length - 1).bit_length())
    return min(power, config.prefill_chunk, config.capacity)


def rows_at_once(slots: int, config: GenerateConfig, batch: int) -> int:
    """R, the prompts of a bucket that are read together: as many as fill one prefill chunk."""
    return max(1, min(batch, config.prefill_chunk // slots))


def pack(requests: Sequence[Request], rows: int, slots: int, seed: int) -> Prompts:
    """The requests, and idle rows up to ``rows``."""
    members = [*requests, *[IDLE] * (rows - len(requests))]
    tokens = np.zeros((rows, slots), np.int32)
    for row, request in enumerate(members):
        tokens[row, : len(request.token_ids)] = request.token_ids
    sampling: list[Any] = [
        np.asarray([request.sampling[field] for request in members], dtype)
        for field, dtype in enumerate(_SAMPLING_DTYPES)
    ]
    return Prompts(
        tokens=tokens,
        lengths=np.asarray([len(request.token_ids) for request in members], np.int32),
        seeds=np.asarray([seed if r.seed is None else r.seed for r in members], np.uint32),
        folds=np.asarray([r.index if r.seed is None else UNFOLDED for r in members], np.int32),
        sampling=SamplingParams(*sampling),
        max_new_tokens=np.asarray([request.max_new_tokens for request in members], np.int32),
    )

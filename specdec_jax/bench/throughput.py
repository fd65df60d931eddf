"""Slots that are refilled against waiting for whole batches, on the same requests."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..batch import Answer, BatchGenerator, Request
from ..batch.prompts import bucket
from ..generate import generate
from ..sampling import SamplingParams


class Speed(NamedTuple):
    """What a way of answering took; building programs is left out."""

    rows: int
    tokens: int
    seconds: float
    rows_per_second: float
    tokens_per_second: float


def uneven(
    prompts: Sequence[Sequence[int]], count: int, *, mean: int, most: int, sampling: SamplingParams, seed: int
) -> list[Request]:
    """Requests for the prompts in turn, with limits as uneven as answers are: exponential around ``mean`` tokens."""
    limits = np.random.default_rng(seed).exponential(mean, count)
    return [
        Request(index, prompts[index % len(prompts)], sampling, int(min(max(limit, 1), most)))
        for index, limit in enumerate(limits)
    ]


def with_refill(generator: BatchGenerator, requests: Sequence[Request]) -> tuple[Speed, dict[int, list[int]]]:
    """By slots; also the new tokens of each request."""
    seconds, found = 0.0, {}
    for finished in generator.stretches(requests):
        seconds += finished.seconds
        found |= {one.request.index: one.token_ids for one in finished.answers if isinstance(one, Answer)}
    return _speed(found, seconds), found


def in_whole_batches(generator: BatchGenerator, requests: Sequence[Request]) -> tuple[Speed, dict[int, list[int]]]:
    """The same by `generate`, batch after batch, each as long as its longest answer; also the new tokens."""
    slots = max(bucket(len(request.token_ids), generator.config) for request in requests)
    batches = [requests[first : first + generator.batch] for first in range(0, len(requests), generator.batch)]
    warm_up = [Request(0, [0], max_new_tokens=1)] * len(batches[0])
    _whole_batch(generator, warm_up, slots)
    started, found = time.perf_counter(), {}
    for members in batches:
        found |= _whole_batch(generator, members, slots)
    return _speed(found, time.perf_counter() - started), found


def _whole_batch(generator: BatchGenerator, members: Sequence[Request], slots: int) -> dict[int, list[int]]:
    rows = [*members, *[members[0]] * (generator.batch - len(members))]
    prompts = np.zeros((len(rows), slots), np.int32)
    for row, request in enumerate(rows):
        prompts[row, : len(request.token_ids)] = request.token_ids
    key = jax.random.key(generator.seed)
    generation = generate(
        generator.target,
        generator.target_params,
        generator.drafter,
        generator.drafter_params,
        prompts,
        [len(request.token_ids) for request in rows],
        key=jnp.stack([jax.random.fold_in(key, request.index) for request in rows]),
        sampling=SamplingParams(*(jnp.asarray(v) for v in zip(*(row.sampling for row in rows), strict=True))),
        config=generator.config,
        max_new_tokens=[request.max_new_tokens for request in rows],
        eos_tokens=generator.eos_tokens,
        controller=generator.controller,
        costs=generator.costs,
    )
    tokens, lengths = np.asarray(generation.tokens), np.asarray(generation.lengths)
    return {request.index: tokens[row, : lengths[row]].tolist() for row, request in enumerate(members)}


def _speed(found: dict[int, list[int]], seconds: float) -> Speed:
    tokens = sum(map(len, found.values()))
    return Speed(len(found), tokens, seconds, len(found) / seconds, tokens / seconds)

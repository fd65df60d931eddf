"""Answers to requests, in batches of a few static shapes.

All that the command knows of running a model is `answer`: requests in, answers out, in the same order.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..generate import generate
from ..sampling import SamplingParams
from ..state import FinishReason, GenerateConfig, Generation, Stats
from .drafting import Drafting
from .requests import Request

_LEAST_BUCKET = 64


class Answer(NamedTuple):
    """What came of a request."""

    request: Request
    token_ids: list[int]
    finish_reason: FinishReason
    logprobs: list[float]
    """Of each token under the model's own softmax."""
    sampled_logprobs: list[float]
    """Of each token under the distribution that it was drawn from."""
    stats: Stats
    """Of this row, [1] and [1, K]."""
    seconds: float
    """Its share of the time its batch took."""


class Engine(NamedTuple):
    """What stays the same for all requests."""

    drafting: Drafting
    config: GenerateConfig
    batch: int
    seed: int


def answer(
    engine: Engine, requests: Sequence[Request], *, compiling: Callable[[int], None] = lambda slots: None
) -> Iterator[Answer]:
    """Answer all requests, in their order. ``compiling`` is told when a program for so many prompt slots is built.

    A batch holds requests of one bucket, so there are at most as many programs as there are buckets. Its time leaves
    compiling out: before a bucket's first batch, rows that ask for no token run through it.
    """
    early: dict[int, Answer] = {}
    position = {request.index: place for place, request in enumerate(requests)}
    warm, due = set(), 0
    for slots, members in _batches(requests, engine):
        if slots not in warm:
            compiling(slots)
            jax.block_until_ready(_run(engine, [_idle(member) for member in members], slots))
            warm.add(slots)
        started = time.perf_counter()
        generation = jax.block_until_ready(_run(engine, members, slots))
        seconds = (time.perf_counter() - started) / len(members)
        for row, request in enumerate(members):
            early[position[request.index]] = _answer(request, generation, row, seconds)
        while due in early:
            yield early.pop(due)
            due += 1


def bucket(length: int, config: GenerateConfig) -> int:
    """Prompt slots for a prompt of ``length`` tokens: a power of two, and past one prefill chunk the whole capacity.

    The size of a bucket is the size of the chunks that its prompts are read in. Prompts of several chunks share the
    largest one: a compiled loop reads as many chunks as the longest needs.
    """
    if length > config.prefill_chunk:
        return config.capacity
    power = max(_LEAST_BUCKET, 1 << (length - 1).bit_length())
    return min(power, config.prefill_chunk, config.capacity)


def _batches(requests: Sequence[Request], engine: Engine) -> list[tuple[int, list[Request]]]:
    """Requests of one bucket each, in the order of their first requests, so that answers can leave early."""
    batches: list[tuple[int, list[Request]]] = []
    open_: dict[int, list[Request]] = {}
    for request in requests:
        slots = bucket(len(request.token_ids), engine.config)
        members = open_.get(slots)
        if members is None or len(members) == engine.batch:
            members = open_[slots] = []
            batches.append((slots, members))
        members.append(request)
    return batches


def _idle(request: Request) -> Request:
    """Ends at once: it fills up a batch, or runs a program for the sake of compiling it."""
    return dataclasses.replace(request, token_ids=request.token_ids[:1], max_new_tokens=0)


def _run(engine: Engine, members: Sequence[Request], slots: int) -> Generation:
    rows = [*members, *[_idle(members[0])] * (engine.batch - len(members))]
    prompts = np.zeros((len(rows), slots), np.int32)
    for row, request in enumerate(rows):
        prompts[row, : len(request.token_ids)] = request.token_ids
    sampling = SamplingParams(*(jnp.asarray(values) for values in zip(*(row.sampling for row in rows), strict=True)))
    tokenizer = engine.drafting.target.tokenizer
    return generate(
        engine.drafting.target.model,
        engine.drafting.target.params,
        engine.drafting.drafter,
        engine.drafting.params,
        prompts,
        np.asarray([len(request.token_ids) for request in rows]),
        key=jnp.stack([request.key(engine.seed) for request in rows]),
        sampling=sampling,
        config=engine.config,
        max_new_tokens=np.asarray([request.max_new_tokens for request in rows]),
        eos_tokens=() if tokenizer is None else tokenizer.eos_ids,
    )


def _answer(request: Request, generation: Generation, row: int, seconds: float) -> Answer:
    length = int(generation.lengths[row])
    return Answer(
        request=request,
        token_ids=np.asarray(generation.tokens)[row, :length].tolist(),
        finish_reason=FinishReason(int(generation.finish_reason[row])),
        logprobs=np.asarray(generation.logprobs.raw)[row, :length].tolist(),
        sampled_logprobs=np.asarray(generation.logprobs.sampled)[row, :length].tolist(),
        stats=jax.tree.map(lambda counts: counts[row : row + 1], generation.stats),
        seconds=seconds,
    )

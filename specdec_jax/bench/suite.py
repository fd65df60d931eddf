"""The whole benchmark of decoding: a contest at each batch size, the cost of a round, traces."""

import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ..generate import generate
from ..models import Loaded
from ..sampling import SamplingParams
from ..state import GenerateConfig
from .at_batch import PLAIN, Draft, at_batch
from .contest import Contestant, Prompts
from .roofline import bandwidth, weight_bytes
from .rounds import round_cost
from .traces import count_traces


def measure(
    target: Loaded,
    draft: Draft,
    others: Callable[[int], Mapping[str, Contestant]],
    prompts: Prompts,
    *,
    batches: Sequence[int],
    fixed: Sequence[int],
    config: GenerateConfig,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """All figures of one run, ready for JSON.

    Args:
        target: the model whose text everyone writes.
        draft: who guesses.
        others: contestants from elsewhere, for a batch size.
        prompts: token ids.
        batches: rows that are answered at a time.
        fixed: draft lengths to hold the adaptive one against.
        config: capacity, and the most guesses of the adaptive draft length.
        max_new_tokens, repeats: how much is generated, and how often it is timed.
        progress: told what goes on.
    """
    model, traces = count_traces(target.model)
    target = target._replace(model=model)
    progress("the bandwidth of the memory")
    rate = bandwidth(weight_bytes(target.params))
    contests = [
        at_batch(
            target,
            draft,
            others(batch),
            prompts,
            batch=batch,
            fixed=fixed,
            config=config,
            max_new_tokens=max_new_tokens,
            repeats=repeats,
            bandwidth=rate,
            progress=progress,
        )
        for batch in batches
    ]

    progress("a second call with other values")
    before = traces()
    _call_again(target, draft, batches[-1], config)
    traced = traces() - before

    progress("the cost of a round")
    costs = {
        name: round_cost(
            model,
            target.params,
            who,
            params,
            list(prompts[0]),
            config=config,
            max_new_tokens=max_new_tokens,
            repeats=repeats,
            passes=passes,
        )
        for name, who, params, passes in (
            (PLAIN, None, None, ()),
            (f"fixed {config.draft_length}", draft.drafter, draft.params, draft.passes),
        )
    }
    return {
        "target": target.name,
        "draft": draft.name,
        "prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "capacity": config.capacity,
        "draft_length": config.draft_length,
        "repeats": repeats,
        "bandwidth": rate,
        "weight_bytes": weight_bytes(target.params),
        "batches": contests,
        "round": {name: cost._asdict() for name, cost in costs.items()},
        "second_call_traces": traced,
        "machine": _machine(),
    }


def _call_again(target: Loaded, draft: Draft, batch: int, config: GenerateConfig) -> None:
    """A call of the same shapes in which every traced value is another."""
    prompts = jax.numpy.zeros((batch, config.capacity), jax.numpy.int32)
    generate(
        target.model,
        target.params,
        draft.drafter,
        draft.params,
        prompts,
        [1] * batch,
        key=jax.random.key(1),
        sampling=SamplingParams(temperature=0.9, top_k=7, top_p=0.8, min_p=0.01),
        config=config,
        max_new_tokens=[3] * batch,
        eos_tokens=[0, 1, 2],
    )


def _machine() -> dict[str, Any]:
    packages = {}
    for name in ("jax", "flax", "torch", "transformers"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"backend": jax.default_backend(), "cores": cores, "python": platform.python_version(), **packages}

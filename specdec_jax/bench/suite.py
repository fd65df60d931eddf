"""The whole benchmark of decoding at batch 1: contest, cost of a round, traces, memory."""

import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from .._typing import PyTree
from ..control import Costs
from ..drafters import Drafter
from ..generate import generate
from ..lm import LanguageModel
from ..models import Loaded
from ..sampling import SamplingParams
from ..state import GenerateConfig, Generation, summary
from .contest import Contestant, contest, speculative
from .memory import memory
from .rounds import Pass, round_cost
from .traces import count_traces

PLAIN = "specdec_jax"


class Draft(NamedTuple):
    """A drafter to measure."""

    name: str
    drafter: Drafter
    params: PyTree
    passes: Sequence[Pass]
    """That it makes in a round."""
    costs: Costs | None = None
    """By which the draft length is chosen, if they were measured."""


def measure(
    target: Loaded,
    draft: Draft,
    others: Mapping[str, Contestant],
    prompts: Sequence[Sequence[int]],
    *,
    config: GenerateConfig,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """All figures of one run, ready for JSON.

    Args:
        target: the model whose text everyone writes.
        draft: who guesses.
        others: contestants from elsewhere, the first of which is what the speeds are compared with.
        prompts: token ids.
        config: capacity and draft length.
        max_new_tokens, repeats: how much is generated, and how often it is timed.
        progress: told what goes on.
    """
    model, traces = count_traces(target.model)
    drafter, drafter_params = draft.drafter, draft.params
    drafted = f"{PLAIN}, {draft.name}"
    eos = () if target.tokenizer is None else target.tokenizer.eos_ids
    seen: list[Generation] = []

    def ours(who: Drafter | None, params: PyTree, **extra) -> Contestant:
        return speculative(model, target.params, who, params, config=config, eos_tokens=eos, **extra)

    contestants = {
        **others,
        PLAIN: ours(None, None),
        drafted: ours(drafter, drafter_params, costs=draft.costs, seen=seen.append),
    }
    entries = contest(contestants, prompts, max_new_tokens=max_new_tokens, repeats=repeats, progress=progress)
    speed = {name: entry.tokens_per_second for name, entry in entries.items()}

    progress("a second call with other values")
    before = traces()
    _call_again(model, target.params, drafter, drafter_params, prompts[-1], config)
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
            passes=() if who is None else draft.passes,
        )
        for name, who, params in ((PLAIN, None, None), (drafted, drafter, drafter_params))
    }
    progress("memory")
    used = memory(model, target.params, drafter, drafter_params, batch=1, prompt_slots=config.capacity, config=config)
    return {
        "target": target.name,
        "draft": draft.name,
        "prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "capacity": config.capacity,
        "draft_length": config.draft_length,
        "repeats": repeats,
        "contestants": {name: entry._asdict() for name, entry in entries.items()},
        "metrics": _metrics(seen) | {"speedup": speed[drafted] / speed[PLAIN]},
        "against": {first: speed[PLAIN] / speed[first] for first in list(others)[:1]},
        "round": {name: cost._asdict() for name, cost in costs.items()},
        "second_call_traces": traced,
        "memory": used._asdict(),
        "machine": _machine(),
    }


def _call_again(
    model: LanguageModel, params: PyTree, drafter: Drafter, drafter_params: PyTree, prompt, config: GenerateConfig
) -> None:
    """A call of the same shapes in which every traced value is another."""
    prompts = jax.numpy.zeros((1, config.capacity), jax.numpy.int32).at[0, 0].set(prompt[0])
    generate(
        model,
        params,
        drafter,
        drafter_params,
        prompts,
        [1],
        key=jax.random.key(1),
        sampling=SamplingParams(temperature=0.9, top_k=7, top_p=0.8, min_p=0.01),
        config=config,
        max_new_tokens=[3],
        eos_tokens=[0, 1, 2],
    )


def _metrics(generations: Sequence[Generation]) -> dict[str, Any]:
    """Over all generations; timed repeats and the warm-up count too, which changes ratios little and speed not."""
    stats = jax.tree.map(lambda *rows: jax.numpy.concatenate(rows), *(one.stats for one in generations))
    found = summary(stats, jax.numpy.concatenate([one.lengths for one in generations]))
    return {name: found[name] for name in ("acceptance_rate", "block_efficiency", "accepted_at")}


def _machine() -> dict[str, Any]:
    packages = {}
    for name in ("jax", "flax", "torch", "transformers"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"backend": jax.default_backend(), "cores": cores, "python": platform.python_version(), **packages}

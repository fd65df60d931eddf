"""Plain decoding, fixed draft lengths, the adaptive one and others, in turns at one batch size."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._typing import PyTree
from ..control import Costs, constant
from ..drafters import Drafter
from ..models import Loaded
from ..state import GenerateConfig, summary
from .contest import Answered, Contestant, Prompts, contest, in_batches, speculative
from .memory import memory
from .roofline import bytes_read
from .rounds import Pass

PLAIN, ADAPTIVE = "plain", "adaptive"
_READING = "reading the prompts"


class Draft(NamedTuple):
    """A drafter to measure."""

    name: str
    drafter: Drafter
    params: PyTree
    passes: Sequence[Pass]
    """That it makes in a round."""
    costs: Callable[[int], Costs | None] = lambda batch: None
    """By which the draft length is chosen at a batch size, if they were measured."""


def at_batch(
    target: Loaded,
    draft: Draft,
    others: Mapping[str, Contestant],
    prompts: Prompts,
    *,
    batch: int,
    fixed: Sequence[int],
    config: GenerateConfig,
    max_new_tokens: int,
    repeats: int,
    bandwidth: float,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """What each contestant did, what the adaptive one is worth beside the others, and what memory it takes.

    ``bandwidth`` is in bytes a second; the rest is as in `measure`.
    """
    eos = () if target.tokenizer is None else target.tokenizer.eos_ids
    seen: dict[str, list[Answered]] = {}
    who: dict[str, tuple[Drafter | None, PyTree]] = {}

    def ours(name: str, drafter: Drafter | None, params: PyTree, config: GenerateConfig, **extra) -> Contestant:
        seen[name], who[name] = [], (drafter, params)
        return speculative(
            target.model,
            target.params,
            drafter,
            params,
            config=config,
            eos_tokens=eos,
            seen=seen[name].append,
            **extra,
        )

    def held(K: int) -> Contestant:
        short = dataclasses.replace(config, draft_length=K, verify_widths=())
        return ours(f"fixed {K}", draft.drafter, draft.params, short, controller=constant())

    costs = draft.costs(batch)
    reading = ours(_READING, None, None, config)
    contestants = {
        **others,
        PLAIN: ours(PLAIN, None, None, config),
        **{f"fixed {K}": held(K) for K in fixed},
        ADAPTIVE: ours(ADAPTIVE, draft.drafter, draft.params, config, costs=costs),
        _READING: lambda prompts, limit: reading(prompts, 0),
    }
    progress(f"batch size {batch}")
    groups = in_batches(prompts, batch)
    entries = contest(contestants, groups, max_new_tokens=max_new_tokens, repeats=repeats, progress=progress)
    read_in = entries.pop(_READING).seconds
    speed = {name: entry.tokens_per_second for name, entry in entries.items()}

    def figures(name: str) -> dict[str, Any]:
        """Of one of ours."""
        drafter, params = who[name]
        timed = seen[name][1:]  # without the warm-up
        least = bytes_read(timed, target.model, target.params, drafter, params) / repeats / bandwidth
        decoding = entries[name].seconds - read_in
        share = least / decoding if decoding > 0 else float("nan")
        return {"roofline": share} | ({} if drafter is None else _metrics(timed))

    progress("memory")
    used = memory(
        target.model,
        target.params,
        draft.drafter,
        draft.params,
        batch=batch,
        prompt_slots=config.capacity,
        config=config,
    )
    best = {"best fixed": max(speed[f"fixed {K}"] for K in fixed)} if fixed else {}
    against = {name: speed[name] for name in (*others, PLAIN)} | best
    return {
        "batch": batch,
        "costs": "estimated" if costs is None else "measured",
        "reading_seconds": read_in,
        "contestants": {
            name: entry._asdict() | {"speedup": speed[name] / speed[PLAIN]} | (figures(name) if name in who else {})
            for name, entry in entries.items()
        },
        "adaptive_against": {name: speed[ADAPTIVE] / other for name, other in against.items()},
        "memory": used._asdict(),
    }


def _metrics(answered: Sequence[Answered]) -> dict[str, Any]:
    """Over all generations that were timed."""
    generations = [one.generation for one in answered]
    stats = jax.tree.map(lambda *rows: jnp.concatenate(rows), *(one.stats for one in generations))
    found = summary(stats, jnp.concatenate([one.lengths for one in generations]))
    return {name: found[name] for name in ("acceptance_rate", "block_efficiency", "accepted_at")}

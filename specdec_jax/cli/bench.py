"""``specdec bench``: plain and speculative decoding beside transformers, on the same weights, prompts and threads."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..models import load, resolve
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError, costs, drafting, requests
from .options import parse
from .prompts import SHIPPED, from_file

_CONFIG = GenerateConfig(capacity=512, draft_length=7, prefill_chunk=64)


@dataclasses.dataclass(frozen=True)
class Options:
    """Time greedy decoding at batch 1, in turns and by medians, and print tables and one line of JSON.

    Beside the contest it measures the cost of a round against its own forward passes, what a second call with other
    values traces, and the memory that XLA reports.
    """

    prompt_file: Path = SHIPPED
    """Prompts as in specdec generate; by default those that come with the package."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, or smollm2-135m."""
    draft: str = "ngram"
    """Who guesses: ngram, exit:M for the target's own first M layers, or a model with its vocabulary (directory,
    GGUF file or name)."""
    draft_length: int = _CONFIG.draft_length
    """Most guesses in a round, here and in transformers' prompt lookup."""
    capacity: int = _CONFIG.capacity
    """Most tokens a row may hold, prompt included."""
    max_new_tokens: int = 64
    """Most new tokens of an answer."""
    repeats: int = 3
    """Times that each answer is timed; the median counts."""
    threads: int = 2
    """Processor threads for either side."""
    transformers: bool = True
    """Run transformers too, which comes with specdec-jax[bench]."""

    def __post_init__(self):
        self.config()
        for name in ("max_new_tokens", "repeats", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected >= 1")
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter to compare plain decoding with, such as ngram")

    def config(self) -> GenerateConfig:
        """The static part."""
        return dataclasses.replace(_CONFIG, capacity=self.capacity, draft_length=self.draft_length)


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "bench", args)
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it may use cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    from .. import bench

    errors = Console(stderr=True, highlight=False, style="dim")
    prompts = from_file(options.prompt_file)
    errors.print(f"loading {options.target}")
    target = load(options.target)
    config = options.config()
    asked, faults = requests.prepare(
        prompts,
        target,
        config=config,
        sampling=SamplingParams(temperature=0.0),
        max_new_tokens=options.max_new_tokens,
        chat=True,
    )
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    made = drafting.make(options.draft, target)
    assert made.drafter is not None, "Options refuses none"
    passes = [bench.Pass(*one) for one in made.passes(options.draft_length)]
    found = bench.measure(
        made.target,
        bench.Draft(made.name, made.drafter, made.params, passes, costs.find(made, config, 1)),
        _others(options, target.tokenizer.eos_ids if target.tokenizer else ()),
        [request.token_ids for request in asked],
        config=config,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        progress=errors.print,
    )
    found["threads"] = options.threads
    report(found, Console(highlight=False))
    print(json.dumps(found))
    return 0


def _others(options: Options, eos_tokens: Sequence[int]):
    if not options.transformers:
        return {}
    from ..bench.huggingface import transformers_contestants

    try:
        return transformers_contestants(
            resolve(options.target).path,
            eos_tokens=eos_tokens,
            draft_length=options.draft_length,
            threads=options.threads,
        )
    except ImportError as error:
        raise UserError(
            f"{error.name} is not installed; run pip install 'specdec-jax[bench]', or leave it out with "
            "--no-transformers"
        ) from error
    except (ValueError, OSError) as error:
        raise UserError(f"transformers cannot load it ({error}); leave it out with --no-transformers") from error


def report(found: dict[str, Any], console: Console) -> None:
    """The figures for people."""
    contest = Table(
        "",
        title=f"{found['target']}, batch 1, {found['prompts']} prompts, {found['threads']} threads",
        title_justify="left",
    )
    for name in ("tokens", "seconds", "tokens/s", "relative", "same tokens"):
        contest.add_column(name, justify="right")
    entries = found["contestants"]
    first = next(iter(entries.values()))["tokens_per_second"]
    for name, entry in entries.items():
        speed = entry["tokens_per_second"]
        contest.add_row(
            name,
            str(entry["tokens"]),
            f"{entry['seconds']:.2f}",
            f"{speed:.2f}",
            f"{speed / first:.2f}",
            f"{entry['equal']:.1%}",
        )
    console.print(contest)

    rounds = Table("", title="a round, in milliseconds", title_justify="left")
    for name in ("round", "verify", "draft", "round / passes"):
        rounds.add_column(name, justify="right")
    for name, cost in found["round"].items():
        parts = [f"{1e3 * cost[part]:.1f}" for part in ("round_seconds", "verify_seconds", "draft_seconds")]
        rounds.add_row(name, *parts, f"{cost['ratio']:.3f}")
    console.print(rounds)

    used, metrics = found["memory"], found["metrics"]
    console.print(
        f"With the drafter: acceptance_rate {metrics['acceptance_rate']:.2f}, block_efficiency "
        f"{metrics['block_efficiency']:.2f}, speedup {metrics['speedup']:.2f}.\n"
        f"A second call with other values traced {found['second_call_traces']} passes.\n"
        f"Memory: {_mib(used['cache_bytes'])} of cache, {_mib(used['temporary_bytes'])} of temporaries with the cache, "
        f"{used['cache_copies']} copies of an array as large as the cache's.\n"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"

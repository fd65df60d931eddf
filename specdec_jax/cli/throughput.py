"""``specdec throughput``: slots with refill against whole batches, and rows per second by batch size."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..batch import BatchGenerator, Request
from ..bench import throughput
from ..control import adaptive
from ..models import load
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError, consoles, drafting, requests
from .engine import generator
from .options import parse
from .prompts import SHIPPED, from_file

_CONFIG = GenerateConfig(capacity=512, prefill_chunk=64)


@dataclasses.dataclass(frozen=True)
class Options:
    """Time many answers of very uneven length: with slots that are refilled, and waiting for whole batches.

    Limits are exponential around a mean, and end tokens are ignored, so that every run does the same work.
    """

    prompt_file: Path = SHIPPED
    """Prompts as in specdec generate, used in turn; by default those that come with the package."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "ngram"
    """Who guesses, as in specdec generate."""
    count: int = 64
    """Requests of a run."""
    batches: tuple[int, ...] = (1, 4, 8, 16)
    """Batch sizes at which rows per second are measured, with and without the drafter."""
    versus: int = 8
    """Batch size at which refill is held against whole batches, without the drafter."""
    mean: int = 64
    """Mean of the answers' lengths, in tokens."""
    capacity: int = _CONFIG.capacity
    """Most tokens a row may hold, prompt included."""
    draft_length: int = _CONFIG.draft_length
    """Most guesses in a round."""
    temperature: float = 0.0
    """Of the answers."""
    seed: int = 0
    """Of lengths and answers."""

    def __post_init__(self):
        self.config()
        for name in ("count", "mean", "versus"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected >= 1")
        if min(self.batches, default=1) < 1:
            raise ValueError(f"batches has {min(self.batches)}; expected sizes >= 1")

    def config(self) -> GenerateConfig:
        """The static part."""
        return dataclasses.replace(_CONFIG, capacity=self.capacity, draft_length=self.draft_length)


def main(args: Sequence[str]) -> int:
    """Run the command; 1 where refill changed an answer."""
    options = parse(Options, "throughput", args)
    console, errors = consoles.console(), consoles.errors(style="dim")
    target = load(options.target)
    asked, faults = requests.prepare(
        from_file(options.prompt_file),
        target,
        config=options.config(),
        sampling=SamplingParams(),
        max_new_tokens=1,
        chat=True,
    )
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    longest = max(len(request.token_ids) for request in asked)
    work = throughput.uneven(
        [request.token_ids for request in asked],
        options.count,
        mean=options.mean,
        most=options.capacity - longest,
        sampling=SamplingParams(temperature=options.temperature),
        seed=options.seed,
    )

    def of(draft: str, batch: int) -> BatchGenerator:
        made = drafting.make(draft, target)
        ask = generator(made, options.config(), batch=batch, seed=options.seed, controller=adaptive("throughput"))
        return dataclasses.replace(ask, eos_tokens=())

    errors.print(f"{options.count} answers of {sum(one.max_new_tokens for one in work)} tokens in all")
    found = _versus(of("none", options.versus), work)
    _report_versus(found, options, console)
    found["batches"] = []
    for batch in options.batches:
        for draft in dict.fromkeys(("none", options.draft)):
            errors.print(f"batch {batch}, draft {draft}")
            speed, _ = throughput.with_refill(of(draft, batch), work)
            found["batches"].append({"batch": batch, "draft": draft, **speed._asdict()})
    _report_batches(found["batches"], console)
    print(json.dumps(found))
    return 0 if found["same_tokens"] else 1


def _versus(ask: BatchGenerator, work: Sequence[Request]) -> dict[str, Any]:
    refill, one = throughput.with_refill(ask, work)
    whole, other = throughput.in_whole_batches(ask, work)
    return {
        "refill": refill._asdict(),
        "whole_batches": whole._asdict(),
        "ratio": whole.seconds / refill.seconds,
        "same_tokens": one == other,
    }


def _report_versus(found: dict[str, Any], options: Options, console: Console) -> None:
    table = Table("", title=f"batch {options.versus}, no drafter, {options.count} answers", title_justify="left")
    for name in ("seconds", "rows/s", "tokens/s"):
        table.add_column(name, justify="right")
    for name, key in (("slots with refill", "refill"), ("whole batches", "whole_batches")):
        table.add_row(name, *_cells(found[key]))
    console.print(table)
    same = "the same tokens" if found["same_tokens"] else "OTHER TOKENS"
    console.print(f"Refill is {found['ratio']:.2f} times as fast; {same}.\n")


def _report_batches(entries: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table("batch", "draft", title="slots with refill", title_justify="left")
    for name in ("seconds", "rows/s", "tokens/s"):
        table.add_column(name, justify="right")
    for entry in entries:
        table.add_row(str(entry["batch"]), entry["draft"], *_cells(entry))
    console.print(table)


def _cells(speed: dict[str, Any]) -> list[str]:
    return [f"{speed[name]:.2f}" for name in ("seconds", "rows_per_second", "tokens_per_second")]

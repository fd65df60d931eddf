"""``specdec tune``: measure what draft steps and verify passes cost on this device, to choose draft lengths by."""

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes

from ..bench.simulated import SimulatedCost
from ..control import Costs
from ..state import GenerateConfig
from ..theory import expected_tokens
from . import UserError, consoles, costs, drafting
from .options import CONFIG, parse
from .weights import HELD, Held


@dataclasses.dataclass(frozen=True)
class Options:
    """Measure costs once for a pair of models; the other commands find them and choose draft lengths by them.

    They hold for a batch, capacity and verify widths: measure with those that you generate with.
    """

    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "ngram"
    """Who guesses: ngram, exit:M for the target's own first M layers, a feature head such as smollm2-135m-head, or a
    model with its vocabulary (directory, GGUF file or name)."""
    batch: int = 1
    """Prompts that are answered at a time."""
    rounds: int = 24
    """Rounds that are timed at once."""
    repeats: int = 5
    """Times that they are timed; the median counts."""
    alphas: tuple[float, ...] = ()
    """Also time rounds at these acceptances, simulated by a coin, against what the closed forms make of the costs."""
    weights: OmitArgPrefixes[Held] = HELD
    config: OmitArgPrefixes[GenerateConfig] = CONFIG

    def __post_init__(self):
        self.weights.check(self.draft)
        for name in ("batch", "rounds", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected >= 1")
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter, whose steps are to be weighed, such as ngram")


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "tune", args)
    from .. import bench

    errors = consoles.errors(style="dim")
    errors.print(f"loading {options.target}")
    held = options.weights
    target = drafting.load_target(options.target, options.draft, weights=held.target_weights)
    held.announce(target, errors)
    made = drafting.make(options.draft, target, weights=held.draft_weights)
    assert made.drafter is not None, "Options refuses none"
    errors.print("timing rounds of several lengths")
    config = options.config
    try:
        found, rounds = bench.measure_costs(
            made.target.model,
            made.target.params,
            made.drafter,
            made.params,
            batch=options.batch,
            config=config,
            alphas=options.alphas,
            rounds=options.rounds,
            repeats=options.repeats,
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    key = costs.key(made, config, options.batch)
    path = costs.save(key, found)
    report(found, rounds, config, consoles.console())
    errors.print(f"kept in {path}")
    record = {"path": str(path), "key": key, "draft_step": found.draft_step, "verify": list(found.verify)}
    print(json.dumps(record | {"rounds": [one._asdict() for one in rounds]}))
    return 0


def report(found: Costs, rounds: Sequence[SimulatedCost], config: GenerateConfig, console: Console) -> None:
    """The figures for people: rounds against the costs kept, and speedups against the closed form."""
    table = Table("alpha, simulated", title="rounds of which no text is real, in milliseconds", title_justify="left")
    for name in ("guesses", "measured", "by the costs", "speedup", "closed form"):
        table.add_column(name, justify="right")
    plain = rounds[0].round_seconds
    for one in rounds:
        expected = found.of_round(one.draft_length, config.widths)
        closed = expected_tokens(one.alpha, one.draft_length) * found.of_round(0, config.widths) / expected
        table.add_row(
            f"{one.alpha:.2f}",
            str(one.draft_length),
            f"{1e3 * one.round_seconds:.1f}",
            f"{1e3 * expected:.1f}",
            f"{one.block_efficiency * plain / one.round_seconds:.2f}",
            f"{closed:.2f}",
        )
    console.print(table)

"""``specdec tune``: measure what draft steps and verify passes cost on this device, for the other commands to weigh."""

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes

from ..models import load
from ..state import GenerateConfig
from . import UserError, costs, drafting
from .options import CONFIG, parse


@dataclasses.dataclass(frozen=True)
class Options:
    """Measure costs once for a pair of models; the other commands find them and choose draft lengths by them.

    They hold for a batch, capacity and verify widths: measure with those that you generate with.
    """

    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, or smollm2-135m."""
    draft: str = "ngram"
    """Who guesses: ngram, exit:M for the target's own first M layers, or a model with its vocabulary (directory,
    GGUF file or name)."""
    batch: int = 1
    """Prompts that are answered at a time."""
    rounds: int = 24
    """Rounds that are timed at once."""
    repeats: int = 5
    """Times that they are timed; the median counts."""
    alphas: tuple[float, ...] = ()
    """Also time rounds at these acceptances, simulated by a coin, against what the closed forms make of the costs."""
    config: OmitArgPrefixes[GenerateConfig] = CONFIG

    def __post_init__(self):
        for name in ("batch", "rounds", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected >= 1")
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter, whose steps are to be weighed, such as ngram")


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "tune", args)
    errors = Console(stderr=True, highlight=False, style="dim")
    errors.print(f"loading {options.target}")
    made = drafting.make(options.draft, load(options.target))
    errors.print("timing rounds of several lengths")
    try:
        found, seconds, simulated = _measure(options, made)
    except ValueError as error:
        raise UserError(str(error)) from error
    key = costs.key(made, options.config, options.batch)
    path = costs.save(key, found)

    rounds = Table("guesses", title="rounds, in milliseconds", title_justify="left")
    for name in ("measured", "by the costs kept"):
        rounds.add_column(name, justify="right")
    for guesses, measured in seconds.items():
        kept = found.of_round(guesses, options.config.widths)
        rounds.add_row(str(guesses), f"{1e3 * measured:.1f}", f"{1e3 * kept:.1f}")
    console = Console(highlight=False)
    console.print(rounds)
    if simulated:
        speedups = Table("alpha", title="speedup at simulated acceptance, no real text", title_justify="left")
        for name in ("guesses", "measured", "closed form"):
            speedups.add_column(name, justify="right")
        for one in simulated:
            speedups.add_row(f"{one.alpha:.2f}", str(one.draft_length), f"{one.measured:.2f}", f"{one.predicted:.2f}")
        console.print(speedups)
    errors.print(f"kept in {path}")
    print(
        json.dumps(
            {
                "path": str(path),
                "key": key,
                "draft_step": found.draft_step,
                "verify": list(found.verify),
                "round_seconds": seconds,
                "simulated": [one._asdict() for one in simulated],
            }
        )
    )
    return 0


def _measure(options: Options, made: drafting.Drafting):
    """Costs, seconds of rounds by guesses, and speedups at the alphas asked for."""
    from .. import bench

    assert made.drafter is not None, "Options refuses none"
    pair = (made.target.model, made.target.params, made.drafter, made.params)
    how = {"batch": options.batch, "config": options.config, "repeats": options.repeats}
    found, seconds = bench.measure_costs(*pair, rounds=options.rounds, **how)
    if not options.alphas:
        return found, seconds, []
    points = [(0.0, 0), *((alpha, options.config.draft_length) for alpha in options.alphas)]
    # So many tokens that about as many rounds are timed at the highest alpha.
    tokens = options.rounds * (options.config.draft_length + 1)
    timed = bench.simulated_costs(*pair, points, max_new_tokens=tokens, **how)
    return found, seconds, bench.against_closed_form(timed, found, options.config.widths)

"""``specdec predict``: what speculation gains, from numbers alone or for two models beside what they do."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from .. import theory
from ..sampling import SamplingParams
from ..state import GenerateConfig
from ..viz import picture
from ..viz.curves import Curve, by_draft_length
from . import UserError, consoles
from .options import CONFIG, File, changed, check_integers, check_outputs, parse

_ALPHAS, _DRAFT_COST = (0.6, 0.7, 0.8, 0.9), 0.05
_OF_NUMBERS = ("alpha", "draft_cost", "verify_costs", "rows", "tokens")
_OF_MODELS = ("prompt_file", "temperature", "capacity", "max_new_tokens", "repeats")
_SHOWN = 16
"""Draft lengths that are shown in any case; longer ones where they are best."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Predict tokens of a round, speedup and best draft length before anything is tried.

    From an acceptance and costs: --alpha .7 --draft-cost .05. Or for two models, on prompts, beside the measurement:
    --target MODEL --draft MODEL --prompt-file FILE, one prompt at a time. Acceptance is then counted on every other
    prompt, and what is predicted from it is compared with what happens on the prompts between.
    """

    alpha: tuple[float, ...] = ()
    """Chances that a guess is kept; by default .6 .7 .8 .9."""
    draft_cost: float | None = None
    """Of one guess, in steps of the target; by default .05."""
    verify_costs: tuple[float, ...] = ()
    """Of passes over 1, 2, 3, ... tokens, in steps of the target, so the first is 1; by default all of them are."""
    rows: tuple[int, ...] = (1, 8, 64)
    """Batches whose rounds are predicted: a batch waits for its slowest row."""
    tokens: int = 256
    """Tokens that each of these rows gets."""
    target: str | None = None
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub. By default smollm2-135m, if a draft is named."""
    draft: str | None = None
    """Who guesses: ngram (by default, if a target is named), exit:M, a feature head, or a model with the target's
    vocabulary."""
    prompt_file: Annotated[Path | None, arg(metavar="FILE")] = None
    """Prompts as in specdec generate, at least two; by default those that come with the package."""
    temperature: float = 0.0
    """Of all answers; 0, the default, is greedy."""
    draft_length: int | None = None
    """Most guesses in a round; by default as many as are best, or 4 for two models."""
    capacity: int = CONFIG.capacity
    """Most tokens a row may hold, prompt included."""
    max_new_tokens: int = 32
    """Most new tokens of an answer."""
    repeats: int = 3
    """Times that each answer is timed; the median counts."""
    output: File = None
    """A picture of the curves to write, .svg or .png."""

    def __post_init__(self):
        if self.of_models and (unused := changed(self, _OF_NUMBERS)):
            raise ValueError(f"got models and {' and '.join(unused)}; expected one or the other: models are measured")
        if not self.of_models and (unused := changed(self, _OF_MODELS)):
            raise ValueError(f"got {' and '.join(unused)} without models; expected --target or --draft beside it")
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter, whose gain is to be predicted, such as ngram")
        check_integers(self, tokens=(1, 2**16), max_new_tokens=(1, 2**31), repeats=(1, 2**16))
        if self.draft_length is not None:
            check_integers(self, draft_length=(1, 2**10))
        if self.verify_costs and (self.verify_costs[0] != 1 or len(self.verify_costs) < 2):
            raise ValueError(
                f"verify_costs is {self.verify_costs}; expected 1, for a step of the target, and the costs of wider "
                "passes in such steps"
            )
        if min(self.rows, default=1) < 1:
            raise ValueError(f"rows has {min(self.rows)}; expected batches of at least 1")
        for name in ("alpha", "rows"):
            if len({*getattr(self, name)}) < len(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}; expected each number once")
        SamplingParams(temperature=self.temperature).check()
        if self.output is not None and self.output.suffix not in picture.KINDS:
            raise ValueError(f"output is {self.output}; expected a name that ends in {' or '.join(picture.KINDS)}")
        self.config()

    @property
    def of_models(self) -> bool:
        return self.target is not None or self.draft is not None

    def config(self) -> GenerateConfig:
        """Of the models' programs."""
        K = CONFIG.draft_length if self.draft_length is None else self.draft_length
        return GenerateConfig(capacity=self.capacity, draft_length=K)


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "predict", args)
    check_outputs(options.output)
    console = consoles.console()
    if options.of_models:
        from .predict_models import predict_models

        found, drawn = predict_models(options, console)
    else:
        found, drawn = _predict(options, console)
    if options.output is not None:
        picture.write(drawn, options.output)
        console.print(f"{options.output}: the curves", markup=False, soft_wrap=True)
    print(json.dumps(found))
    return 0


def _predict(options: Options, console: Console) -> tuple[dict[str, Any], picture.Picture]:
    """From numbers alone."""
    draft_cost = _DRAFT_COST if options.draft_cost is None else options.draft_cost
    bound, cost_of = _bound(options), _verify_cost(options)
    asked = options.alpha or _ALPHAS
    try:
        best = [theory.best_draft_length(alpha, draft_cost, cost_of, most=bound)[0] for alpha in asked]
        most = max(_SHOWN, *best) if bound is None else bound
        verify = [cost_of(K) for K in range(most + 1)]
        breaks = [theory.break_even_alpha(K, draft_cost, verify[K]) for K in range(1, most + 1)]
        alphas = [_of_alpha(alpha, K, draft_cost, verify, options) for alpha, K in zip(asked, best, strict=True)]
    except ValueError as error:
        raise UserError(str(error)) from error
    _report(alphas, breaks, options, draft_cost, console)
    if bound is not None and bound in best:
        console.print(f"More than {bound} guesses, the most that were asked about or have known costs, may be better.")
    found = {
        "draft_cost": draft_cost,
        "verify_costs": verify,
        "break_even_alpha": dict(enumerate(breaks, 1)),
        "alphas": alphas,
    }
    lengths = range(most + 1)
    curves = [Curve(f"alpha {one['alpha']:g}", lengths, one["tokens"], one["speedup"]) for one in alphas]
    return found, by_draft_length(curves)


def _bound(options: Options) -> int | None:
    """The most guesses that were asked for or that costs are known for, if either was said."""
    known = len(options.verify_costs) - 1 if options.verify_costs else None
    asked = options.draft_length
    if known is not None and asked is not None and asked > known:
        raise UserError(
            f"verify_costs has {known + 1} numbers; expected {asked + 1}, for passes of up to draft_length + 1 tokens"
        )
    return known if asked is None else asked


def _verify_cost(options: Options) -> Callable[[int], float]:
    """Of a pass over K + 1 tokens."""
    return options.verify_costs.__getitem__ if options.verify_costs else lambda K: 1.0


def _of_alpha(alpha: float, best: int, draft_cost: float, verify: Sequence[float], options: Options) -> dict[str, Any]:
    tokens = [theory.expected_tokens(alpha, K) for K in range(len(verify))]
    speedups = [theory.speedup(alpha, K, draft_cost, cost) for K, cost in enumerate(verify)]
    return {
        "alpha": alpha,
        "tokens": tokens,
        "speedup": speedups,
        "best": {"draft_length": best, "tokens": tokens[best], "speedup": speedups[best]},
        "rounds": {rows: theory.expected_rounds(alpha, best, options.tokens, rows) for rows in options.rows},
    }


def _report(
    alphas: Sequence[dict[str, Any]],
    breaks: Sequence[float | None],
    options: Options,
    draft_cost: float,
    console: Console,
) -> None:
    table = Table("K", title=f"tokens of a round / speedup, a guess at {draft_cost:g} steps", title_justify="left")
    for one in alphas:
        table.add_column(f"alpha {one['alpha']:g}", justify="right")
    table.add_column("pays above alpha", justify="right")
    bests = {one["best"]["draft_length"] for one in alphas}
    for K, least in enumerate(breaks, 1):
        if K > _SHOWN and K not in bests:
            continue
        cells = [f"{one['tokens'][K]:.2f} / {one['speedup'][K]:.2f}" for one in alphas]
        table.add_row(str(K), *cells, "never" if least is None else f"{least:.3f}")
    console.print(table)
    table = Table(
        "alpha", title=f"at the best K: rounds until all of B rows have {options.tokens} tokens", title_justify="left"
    )
    for name in ("K", "tokens", "speedup", *(f"rounds, B={rows}" for rows in options.rows)):
        table.add_column(name, justify="right")
    for one in alphas:
        best = one["best"]
        figures = [f"{best['tokens']:.2f}", f"{best['speedup']:.2f}", *(f"{n:.1f}" for n in one["rounds"].values())]
        table.add_row(f"{one['alpha']:g}", str(best["draft_length"]), *figures)
    console.print(table)

"""The prediction for two models, beside the measurement on prompts that it was not made from."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from .. import bench, theory
from ..bench.lengths import ADAPTIVE, PLAIN, Forecast, Lengths, Measured
from ..control import Costs
from ..sampling import SamplingParams
from ..state import GenerateConfig
from ..viz.curves import Curve, by_draft_length
from ..viz.picture import Picture
from . import UserError, consoles, costs, drafting, requests
from .prompts import SHIPPED, from_file

if TYPE_CHECKING:
    from .predict import Options


def predict_models(options: Options, console: Console) -> tuple[dict[str, Any], Picture]:
    """Figures ready for JSON, and the picture; a table is printed."""
    errors = consoles.errors(style="dim")
    name = options.target or "smollm2-135m"
    prompts = from_file(options.prompt_file or SHIPPED)
    if len(prompts) < 2:
        raise UserError(
            f"{options.prompt_file} has {len(prompts)} prompts; expected 2 or more: from some it is predicted what "
            "happens on the others"
        )
    errors.print(f"loading {name}")
    target, config = drafting.load_target(name, options.draft or "ngram"), options.config()
    asked, faults = requests.prepare(
        prompts,
        target,
        config=config,
        sampling=SamplingParams(temperature=0.0),
        max_new_tokens=options.max_new_tokens,
        chat=target.tokenizer is not None and target.tokenizer.chat_template is not None,
    )
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    made = drafting.make(options.draft or "ngram", target)
    assert made.drafter is not None, "Options refuses none"
    pair = (made.target.model, made.target.params, made.drafter, made.params)

    known = costs.find(made, config, 1)
    if known is None:
        errors.print("measuring costs, which specdec tune would keep")
    try:
        found = bench.measure_costs(*pair, batch=1, config=config)[0] if known is None else known
        lengths = bench.by_length(
            *pair,
            [request.token_ids for request in asked],
            found,
            config=config,
            eos_tokens=() if target.tokenizer is None else target.tokenizer.eos_ids,
            max_new_tokens=options.max_new_tokens,
            repeats=options.repeats,
            temperature=options.temperature,
            progress=errors.print,
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    # One alpha decides only where every guess is made: one that is not made costs nothing and is kept never.
    breaks = _breaks(found, config) if min(lengths.made_at) > _ALWAYS else None
    how = "greedy" if options.temperature == 0 else f"temperature {options.temperature:g}"
    _report(lengths, breaks, f"{target.name} with {made.name}, {how}: predicted / measured", console)
    record = {
        "target": target.name,
        "draft": made.name,
        "prompts": {"counted": lengths.counted, "compared": lengths.compared},
        "temperature": options.temperature,
        "max_new_tokens": options.max_new_tokens,
        "repeats": options.repeats,
        "costs": {"draft_step": float(found.draft_step), "verify": [*map(float, found.verify)]},
        "costs_were_kept": known is not None,
        "break_even_alpha": breaks,
        "alpha_at": lengths.alpha_at,
        "made_at": lengths.made_at,
        "predicted": [one._asdict() for one in lengths.forecasts],
        "measured": {name: one._asdict() for name, one in lengths.measured.items()},
    }
    return record, _picture(lengths)


def _report(lengths: Lengths, breaks: dict[int, float | None] | None, title: str, console: Console) -> None:
    table = Table("K", title=title, title_justify="left")
    for name in (
        "alpha\nat K",
        "made" if breaks is None else "pays\nabove",
        "tokens\nof a round",
        "speedup",
        "tokens\na second",
    ):
        table.add_column(name, justify="right")

    def sides(forecast: Forecast, one: Measured) -> list[str]:
        return [
            f"{forecast.tokens:.2f} / {one.block_efficiency:.2f}",
            f"{forecast.speedup:.2f} / {'?' if one.speedup is None else f'{one.speedup:.2f}'}",
            f"{one.tokens_per_second:.2f}",
        ]

    for K, forecast in enumerate(lengths.forecasts):
        alphas = ["", ""]
        if K:
            decides = f"{lengths.made_at[K - 1]:.2f}" if breaks is None else _share(breaks[K])
            alphas = [f"{lengths.alpha_at[K - 1]:.2f}", decides]
        table.add_row(str(K), *alphas, *sides(forecast, lengths.measured[str(K) if K else PLAIN]))
    best = _best(lengths)
    table.add_row(ADAPTIVE, "", "", *sides(best, lengths.measured[ADAPTIVE]))
    console.print(table)
    console.print(
        f"Predicted from how often guesses were kept after {lengths.counted} of the prompts, every other one; measured "
        f"on the {lengths.compared} between. For {ADAPTIVE}: as the best K, {best.draft_length}. Speedups leave "
        "reading prompts out."
        + (" A guess that is not made counts as refused, and costs nothing." if breaks is None else "")
    )
    if any(one.speedup is None for one in lengths.measured.values()):
        console.print(
            "?: answers were too short to time beside reading their prompts; raise --max-new-tokens.", soft_wrap=True
        )


_ALWAYS = 0.99
"""Share of rounds."""


def _share(alpha: float | None) -> str:
    return "never" if alpha is None else f"{alpha:.2f}"


def _best(lengths: Lengths) -> Forecast:
    return max(lengths.forecasts, key=lambda forecast: forecast.speedup)


def _breaks(found: Costs, config: GenerateConfig) -> dict[int, float | None]:
    """The alphas above which K guesses a round pay."""
    plain = found.of_round(0, config.widths)
    step = float(found.draft_step) / plain
    return {
        K: theory.break_even_alpha(K, step, found.of_round(K, config.widths) / plain - K * step)
        for K in range(1, config.draft_length + 1)
    }


def _picture(lengths: Lengths) -> Picture:
    predicted = lengths.forecasts
    K = [one.draft_length for one in predicted]
    seen = [lengths.measured[str(k) if k else PLAIN] for k in K]
    return by_draft_length(
        [Curve("predicted", K, [one.tokens for one in predicted], [one.speedup for one in predicted])],
        points=[Curve("measured", K, [one.block_efficiency for one in seen], [one.speedup or nan for one in seen])],
    )

"""``specdec plan``: what a TPU slice would do with a pair of models, found out without one."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from .. import plan
from ..models import config_from_json
from ..models.config import DecoderConfig
from ..sharding import make_mesh
from ..state import GenerateConfig
from . import UserError, consoles
from .meshes import held_whole
from .options import parse

SHIPPED = {path.stem: path for path in sorted((Path(plan.__file__).parent / "configs").glob("*.json"))}
"""Configurations by name."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Compile the programs of a job for all chips of a TPU slice, on a machine without any, and say what it would do.

    Needs libtpu: pip install 'specdec-jax[plan]'. It reads configurations, no weights. Exit status 1: too large.
    """

    topology: str = "v5e:4x4"
    """Chips and shape of the slice: v5e:4x4, v6e:16x16, v5p:4x4x4, ..."""
    target: str = "llama-3.1-8b"
    """A config.json, a directory with one, or one that is shipped: llama-3.1-8b, llama-3.1-70b, llama-3.2-1b,
    gemma-3-27b, gemma-3-4b."""
    draft: str = "llama-3.2-1b"
    """The same for the model that drafts, or none."""
    batch: int = 256
    """Rows, over all chips."""
    tensor: int = 8
    """Chips that hold a target between them; the batch is divided over all such groups."""
    draft_whole: bool = False
    """Hold the drafter whole on every chip instead of dividing it too."""
    capacity: int = 2048
    """Most tokens a row may hold, prompt included."""
    prompt_slots: int = 1024
    """Slots of a prompt."""
    draft_length: int = 4
    """Most guesses in a round."""
    rule: str = "block"
    """Acceptance rule."""
    alpha: float = 0.7
    """For the estimate: the probability that a guess is kept."""
    length: int = 1024
    """For the estimate: the tokens of a row that attention reads."""

    def __post_init__(self):
        self.config()
        plan.chip_of(self.topology)
        for name in ("batch", "tensor", "prompt_slots", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected >= 1")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is {self.alpha}; expected a probability, from 0 to 1")

    def config(self) -> GenerateConfig:
        """The static part."""
        return GenerateConfig(capacity=self.capacity, draft_length=self.draft_length, rule=self.rule)


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "plan", args)
    errors = consoles.errors(style="dim")
    target = _config(options.target)
    draft = None if options.draft == "none" else _config(options.draft)
    jax.config.update("jax_platforms", "cpu")  # nothing here runs on the chips that are compiled for
    try:
        devices = plan.devices_of(options.topology)
        mesh = make_mesh(data=max(1, len(devices) // options.tensor), tensor=options.tensor, devices=devices)
        asked = plan.Plan(
            mesh=mesh,
            target=plan.side(target, mesh),
            draft=None if draft is None else plan.side(draft, mesh, whole=options.draft_whole),
            rows=options.batch,
            prompt_slots=options.prompt_slots,
            config=options.config(),
        )
        whole = [
            held_whole(name, config, options.tensor)
            for name, config in ((options.target, target), (options.draft, draft))
            if config is not None and not (config is draft and options.draft_whole)
        ]
        for sentence in filter(None, whole):
            errors.print(sentence, markup=False)
        errors.print(f"compiling for {len(devices)} chips, a minute or more a program")
        report = plan.compiled(asked)
    except ImportError as error:
        raise UserError("libtpu is not installed; run pip install 'specdec-jax[plan]'") from error
    except plan.TooLargeError as error:
        print(json.dumps({"plan": dataclasses.asdict(options), "fits": False, "why": str(error)}))
        errors.print(f"It does not fit. {error}")
        return 1
    except ValueError as error:
        raise UserError(str(error)) from error
    chip = plan.chip_of(options.topology)
    found = _found(options, asked, report, plan.estimate(asked, chip, alpha=options.alpha, length=options.length), chip)
    show(found, consoles.console())
    print(json.dumps(found))
    return 0 if found["fits"] else 1


def _config(name: str) -> DecoderConfig:
    path = SHIPPED.get(name, Path(name))
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise UserError(
            f"there is no configuration {name!r}; expected a config.json, a directory with one, or one of "
            f"{', '.join(SHIPPED)}"
        )
    return config_from_json(path)


def _found(options: Options, asked: plan.Plan, report: plan.Report, best: plan.Estimate, chip: plan.Chip):
    return {
        "plan": dataclasses.asdict(options),
        "chips": asked.mesh.size,
        "mesh": dict(asked.mesh.shape),
        "fits": report.fits(chip),
        "chip_bytes": chip.memory,
        "insert": {"compile_seconds": report.insert.seconds, **report.insert.memory._asdict()},
        "decode": {"compile_seconds": report.decode.seconds, **report.decode.memory._asdict()},
        "round": {**report.traffic._asdict(), "cache_copies": report.cache_copies},
        "estimate": {**best._asdict(), "speedup": best.tokens_per_second / best.plain_tokens_per_second},
    }


def show(found: dict[str, Any], console: Console) -> None:
    """The figures for people."""
    asked = found["plan"]
    table = Table(
        "GB a chip",
        title=f"{asked['target']} with {asked['draft']} on {asked['topology']}: {found['chips']} chips, data "
        f"{found['mesh']['data']} x tensor {found['mesh']['tensor']}, {asked['batch']} rows of {asked['capacity']}",
        title_justify="left",
    )
    for name in ("insert", "decode"):
        table.add_column(name, justify="right")
    for kind in plan.Memory._fields:
        table.add_row(kind, *(f"{found[name][kind] / 1e9:.2f}" for name in ("insert", "decode")))
    totals = [sum(found[name][kind] for kind in plan.Memory._fields) for name in ("insert", "decode")]
    table.add_row("together", *(f"{total / 1e9:.2f}" for total in totals))
    table.add_row("seconds to compile", *(f"{found[name]['compile_seconds']:.0f}" for name in ("insert", "decode")))
    console.print(table)
    traffic, best = found["round"], found["estimate"]
    ratio = f"{traffic['bytes'] / traffic['least_bytes']:.3f} times" if traffic["least_bytes"] else "with nothing as"
    console.print(
        f"It {'fits' if found['fits'] else 'does not fit'} the chip's {found['chip_bytes'] / 1e9:.0f} GB.\n"
        f"A round exchanges {traffic['bytes'] / 1e6:.1f} MB a chip, {ratio} the least that tensor parallelism needs, "
        f"in up to {traffic['messages']} messages; the largest of another kind has {traffic['largest_other']} bytes a "
        "row.\n"
        f"Copies of a cache in the loop: {traffic['cache_copies']}.\n"
        f"At best {best['tokens_per_second']:,.0f} tokens/s with the drafter (alpha {asked['alpha']}, "
        f"{best['tokens_per_round']:.2f} tokens a round) and {best['plain_tokens_per_second']:,.0f} without, at "
        f"{asked['length']} tokens a row: {best['speedup']:.2f} times.\n"
    )

"""``specdec plan``: what a TPU slice would do with a pair of models, found out without one."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes

from .. import plan
from ..models import config_from_json
from ..models.config import DecoderConfig
from ..plan.report import Program
from ..state import GenerateConfig
from . import UserError, consoles, controllers
from .drafting import named
from .meshes import grouped, held_whole
from .options import check_integers, parse
from .weights import HELD, Held

SHIPPED = {path.stem: path for path in sorted((Path(plan.__file__).parent / "configs").glob("*.json"))}
"""Configurations by name."""
_CONFIG = GenerateConfig(capacity=2048)


@dataclasses.dataclass(frozen=True)
class Options:
    """Compile the programs of a job for all chips of a TPU slice, on a machine without any, and say what it would do.

    The job is that of specdec generate with a prompt file, an output, a draft model and the options of the same names.
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
    controller: controllers.Name | None = None
    """How many guesses a round has: as many as pay, or always --draft-length. By default as in a job: constant, but
    adaptive under the coupled and the greedy rule."""
    prompt_slots: int | None = None
    """Tokens of the longest prompts; by default half of the capacity. The program that reads them is compiled, and that
    for the shortest."""
    alpha: float = 0.7
    """For the estimate: the probability that a guess is kept."""
    length: int | None = None
    """For the estimate: the tokens of a row that attention reads; by default half of the capacity."""
    weights: OmitArgPrefixes[Held] = HELD
    config: OmitArgPrefixes[GenerateConfig] = _CONFIG

    def __post_init__(self):
        plan.chip_of(self.topology)
        self.weights.check(self.draft)
        check_integers(self, batch=(1, 2**31), tensor=(1, 2**31))
        # A row has its prompt and a token at least.
        for name, most in (("prompt_slots", self.config.capacity - 1), ("length", self.config.capacity)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"{name} is {value}; expected 1 to {most}, for capacity is {self.config.capacity}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is {self.alpha}; expected a probability, from 0 to 1")

    def resolved(self) -> "Options":
        """With a value for whatever has one by default."""
        half = self.config.capacity // 2
        return dataclasses.replace(
            self,
            controller=controllers.chosen(self.controller, self.config.rule, is_job=True),
            prompt_slots=self.prompt_slots or half,
            length=self.length or half,
        )


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "plan", args).resolved()
    errors = consoles.errors(style="dim")
    target = _config(options.target)
    draft = None if options.draft == "none" else _config(options.draft)
    jax.config.update("jax_platforms", "cpu")  # nothing here runs on the chips that are compiled for
    chip = plan.chip_of(options.topology)
    found: dict[str, Any] = {"plan": dataclasses.asdict(options)}
    try:
        asked = _plan(options, target, draft)
        found |= {"chips": asked.mesh.size, "mesh": dict(asked.mesh.shape)}
        found |= {"chip_bytes": chip.memory, "warnings": _warnings(options, target, draft)}
        for sentence in found["warnings"]:
            errors.print(sentence, markup=False)
        errors.print(f"compiling for {asked.mesh.size} chips, a minute or more a program")
        report = plan.compiled(asked)
    except ImportError as error:
        raise UserError("libtpu is not installed; run pip install 'specdec-jax[plan]'") from error
    except plan.TooLargeError as error:
        found |= {"fits": False, "why": str(error), "params": error.params, "caches": error.caches}
        show_too_large(found, consoles.console())
    except ValueError as error:
        raise UserError(str(error)) from error
    else:
        assert options.length is not None, "Options.resolved"
        best = plan.estimate(asked, chip, alpha=options.alpha, length=options.length)
        found |= {"fits": report.fits(chip), **_compiled(report), **_estimated(best)}
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


def _plan(options: Options, target: DecoderConfig, draft: DecoderConfig | None) -> plan.Plan:
    assert options.controller is not None, "Options.resolved"
    assert options.prompt_slots is not None, "Options.resolved"
    held = options.weights
    mesh = grouped(plan.devices_of(options.topology), options.tensor, options.batch)
    return plan.Plan(
        mesh=mesh,
        target=plan.side(target, mesh, weights=held.target_weights),
        draft=None if draft is None else plan.side(draft, mesh, whole=options.draft_whole, weights=held.draft_weights),
        rows=options.batch,
        prompt_slots=options.prompt_slots,
        config=options.config,
        controller=controllers.made(options.controller),
    )


def _warnings(options: Options, target: DecoderConfig, draft: DecoderConfig | None) -> list[str]:
    cut = [(options.target, target)]
    if draft is not None and not options.draft_whole:
        cut.append((options.draft, draft))
    found = [sentence for name, config in cut if (sentence := held_whole(name, config, options.tensor)) is not None]
    if draft is not None and draft.vocab_size != target.vocab_size:
        found.append(
            f"the logits of {options.target} are {target.vocab_size} wide and those of {options.draft} "
            f"{draft.vocab_size}: a job takes the two only if their tokenizers agree, which configurations do not tell"
        )
    return found


def _compiled(report: plan.Report) -> dict[str, Any]:
    traffic = report.traffic
    of_a_round = {
        **traffic._asdict(),
        "times_least": traffic.bytes / traffic.least_bytes if traffic.least_bytes else None,
        "exchanged": [one._asdict() for one in report.exchanged],
        "copies": {name: [_copy(one) for one in found] for name, found in report.copied._asdict().items()},
    }
    inserts = [{"prompt_slots": width, **_program(one)} for width, one in report.inserts.items()]
    return {"inserts": inserts, "decode": _program(report.decode), "round": of_a_round}


def _program(one: Program) -> dict[str, Any]:
    return {"compile_seconds": one.seconds, **one.memory._asdict(), "total": one.memory.total}


def _copy(one: plan.Copy) -> dict[str, Any]:
    """Trips of its loops from outside in, null where nobody knows them before."""
    return one._asdict() | {"loops": [loop.trips for loop in one.loops]}


def _estimated(best: plan.Estimate) -> dict[str, Any]:
    return {"estimate": {**best._asdict(), "speedup": best.tokens_per_second / best.plain_tokens_per_second}}


def show_too_large(found: dict[str, Any], console: Console) -> None:
    """That the compiler gave up, and what is known all the same."""
    held = found["params"] + found["caches"]
    console.print(f"{_title(found)}\n", markup=False)
    console.print(
        f"It does not fit the chip's {found['chip_bytes'] / 1e9:.0f} GB: {found['params'] / 1e9:.2f} GB of params and "
        f"{found['caches'] / 1e9:.2f} of caches are {held / 1e9:.2f} together, and the programs need more. "
        f"{found['why']}\n",
        markup=False,
    )


def show(found: dict[str, Any], console: Console) -> None:
    """The figures for people."""
    console.print(_title(found), markup=False)
    table = Table("GB a chip")
    programs = {f"insert {one['prompt_slots']}": one for one in found["inserts"]} | {"decode": found["decode"]}
    for name in programs:
        table.add_column(name, justify="right")
    for kind in (*plan.Memory._fields, "total"):
        table.add_row(kind, *(f"{one[kind] / 1e9:.2f}" for one in programs.values()))
    table.add_row("seconds to compile", *(f"{one['compile_seconds']:.0f}" for one in programs.values()))
    console.print(table)
    asked, traffic, best = found["plan"], found["round"], found["estimate"]
    ratio = "with nothing as" if traffic["times_least"] is None else f"{traffic['times_least']:.3f} times"
    console.print(
        f"It {'fits' if found['fits'] else 'does not fit'} the chip's {found['chip_bytes'] / 1e9:.0f} GB.\n"
        f"A round exchanges {traffic['bytes'] / 1e6:.1f} MB a chip, {ratio} the least that tensor parallelism needs, "
        f"in up to {traffic['messages']} messages; the largest of another kind has {traffic['largest_other']} bytes a "
        "row."
    )
    _show_exchanged(traffic["exchanged"], console)
    _show_copies(traffic["copies"], console)
    speeds = f"{best['plain_tokens_per_second']:,.0f} tokens/s without a drafter"
    if asked["draft"] != "none":
        faster = f"{best['tokens_per_round']:.2f} tokens a round), {best['speedup']:.2f} times as many"
        speeds += f" and {best['tokens_per_second']:,.0f} with it (alpha {asked['alpha']}, {faster}"
    console.print(f"At best {speeds}, at {asked['length']} tokens a row.\n")


def _title(found: dict[str, Any]) -> str:
    asked, mesh = found["plan"], found["mesh"]
    groups = f"{found['chips']} chips, data {mesh['data']} x tensor {mesh['tensor']}"
    rows = f"{asked['batch']} rows of {asked['config']['capacity']}"
    held = asked["weights"]
    target, draft = (named(asked[who], held[f"{who}_weights"]) for who in ("target", "draft"))
    return f"{target} with {draft} on {asked['topology']}: {groups}, {rows}"


def _show_exchanged(exchanged: list[dict[str, Any]], console: Console) -> None:
    """Those that a round has, but for the smallest."""
    least = sum(one["bytes"] * one["times"] for one in exchanged) / 100
    for one in exchanged:
        if not one["bytes"] * one["times"] >= least > 0:
            continue
        shapes = ", ".join(map(str, one["shapes"]))
        console.print(
            f"  {one['times']} times {one['kind']} of {shapes}: {one['bytes'] * one['times'] / 1e6:.2f} MB",
            markup=False,
        )


def _show_copies(copies: dict[str, list[dict[str, Any]]], console: Console) -> None:
    whole, layers, others, near = (len(copies[name]) for name in ("whole", "layers", "others", "near"))
    console.print(
        f"Copies in the loop: {whole} as large as a cache, {layers} as large as one layer of it, {others} as large of "
        f"other arrays, {near} into fast memory alone."
    )
    every = [one for found in copies.values() for one in found]
    lines = Counter(f"{one['operation']} of {one['shape']}, {one['bytes'] / 1e6:.1f} MB" for one in every)
    for line, count in lines.items():
        console.print(f"  {count} times {line}", markup=False)

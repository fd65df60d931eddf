"""``specdec distill``: train a drafter for a target, and say what it reaches."""

import dataclasses
import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from tyro.conf import Positional, arg

from ..batch.fingerprint import digest_of
from ..bench import in_turns
from ..bench.rounds import Passes
from ..models import Loaded, load
from ..sampling import SamplingParams
from ..sharding import make_mesh
from ..state import GenerateConfig
from ..training import (
    DataError,
    HeadConfig,
    LossConfig,
    ModelConfig,
    TextConfig,
    TrainConfig,
    TrainingError,
    distil,
    kept,
)
from ..training.checkpoints import alone
from ..training.distill import WORK, Distilled
from ..training.evaluate import Drafting as Evaluated
from ..training.evaluate import Question, in_generation, predicted_speedup
from ..training.measurements import Measurements
from . import UserError, consoles, drafting, requests
from .options import File, check_integers, parse
from .prompts import from_file


@dataclasses.dataclass(frozen=True)
class Options:
    """Train a drafter for a target, on text that the target writes itself or that you give.

    DIR/drafter is what --draft takes, with a card that says what it reaches; DIR/work keeps the text, the teacher's
    outputs, checkpoints and the log. The same command started again goes on where it was stopped.
    """

    directory: Positional[Annotated[Path, arg(metavar="DIR")]]
    """Where to; a directory of its own for each run."""
    target: str = "smollm2-135m"
    """The model to draft for: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the
    owner/name of a model on the Hugging Face Hub."""
    student: Literal["head", "model"] = "head"
    """A feature head, which reads the target's states, or a draft model, which stands alone."""
    head: HeadConfig = dataclasses.field(default_factory=HeadConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    text: TextConfig = dataclasses.field(default_factory=TextConfig)
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    training: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    compute: Literal["float32", "bfloat16"] = "float32"
    """Number format of the computation; parameters are trained in float32."""
    devices: int = 1
    """Devices to divide batches over; the parameters are divided too."""
    questions: File = None
    """Prompts to measure on in real generation when training is done, as in specdec generate."""
    draft_length: int = 4
    """Guesses in a round, where that is measured."""
    max_new_tokens: int = 128
    """Most tokens of an answer, where that is measured."""
    temperatures: tuple[float, ...] = (0.0, 1.0)
    """Of the answers, where that is measured."""

    def __post_init__(self):
        check_integers(self, devices=(1, 2**16), max_new_tokens=(1, 2**16))
        GenerateConfig(draft_length=self.draft_length)
        if not self.temperatures:
            raise ValueError("temperatures has no number; expected at least one, to measure at")
        for temperature in self.temperatures:
            SamplingParams(temperature=temperature).check()
        # Of the kind that is not trained nothing is read.
        other = "model" if self.student == "head" else "head"
        if getattr(self, other) != (ModelConfig() if other == "model" else HeadConfig()):
            raise ValueError(f"got options of --{other}, but the student is a {self.student}; expected its own alone")


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "distill", args)
    errors = consoles.errors()
    if options.devices > len(jax.devices()):
        raise UserError(f"devices is {options.devices}, but there are {len(jax.devices())}; expected at most that many")
    target = load(options.target)
    asked, config = _questions(options, target)
    mesh = None if options.devices == 1 else make_mesh(fsdp=options.devices, devices=jax.devices()[: options.devices])
    try:
        with alone(options.directory / WORK):
            with _progress(errors) as tell:
                made = distil(
                    target,
                    options.directory,
                    options.head if options.student == "head" else options.model,
                    text=options.text,
                    loss=options.loss,
                    training=options.training,
                    mesh=mesh,
                    dtype=options.compute,
                    named=options.target,
                    tell=tell,
                )
            record = made.record
            if asked:
                record = {**record, **_worth(options, target, made, asked, config, errors)}
            if record != made.record:
                kept.replace(made.directory, record)
    except (DataError, TrainingError, FloatingPointError, ValueError, OSError) as error:
        raise UserError(str(error)) from error
    errors.print(f"{made.directory}: what --draft takes; {kept.CARD} says what it reaches")
    shown = ("held_out", "held_out_before", "cost", *(name + when for name in _WORTH for when in ("_before", "")))
    print(json.dumps({key: record[key] for key in shown if key in record}, allow_nan=False))
    return 0


_WORTH = ("measured", "predicted_speedup")


def _questions(options: Options, target: Loaded) -> tuple[list[Question], GenerateConfig]:
    """Read before anything is trained, so that a fault in the file is known at once; with room for all the answers."""
    config = GenerateConfig(capacity=_CAPACITY, draft_length=options.draft_length, prefill_chunk=64)
    if options.questions is None:
        return [], config
    most = target.model.max_positions
    roomy = dataclasses.replace(config, capacity=most or 2**20)
    asked, faults = requests.prepare(
        from_file(options.questions),
        target,
        config=roomy,
        sampling=SamplingParams(),
        max_new_tokens=options.max_new_tokens,
        chat=True,
    )
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    longest = max(asked, key=lambda one: len(one.token_ids))
    needed = len(longest.token_ids) + options.max_new_tokens
    if needed > (most or needed):
        raise UserError(
            f"{longest.source.where}: the question has {len(longest.token_ids)} tokens and max_new_tokens is "
            f"{options.max_new_tokens}, but the target reads {most} tokens in all; expected no more, so ask for fewer "
            "or shorten the question"
        )
    config = dataclasses.replace(config, capacity=max(_CAPACITY, -(-needed // 64) * 64))
    return [Question(one.source.category or "all", list(one.token_ids)) for one in asked], config


_CAPACITY = 512  # the least, so that runs with answers of any usual length are timed in caches of one size


def _worth(
    options: Options,
    target: Loaded,
    made: Distilled,
    asked: Sequence[Question],
    config: GenerateConfig,
    errors: Console,
) -> dict[str, Any]:
    """What the drafter costs and reaches, and what it did before; what was measured already is not measured again."""
    known = Measurements(options.directory / WORK / "measured.jsonl")
    run = digest_of(json.dumps(made.record[name], sort_keys=True).encode() for name in ("settings", "stored"))
    common = {"run": run, "config": dataclasses.asdict(config), "device": jax.devices()[0].device_kind}
    questions = digest_of(json.dumps(question).encode() for question in asked)

    def generation(directory: Path, step: int) -> list[dict[str, Any]]:
        return [
            known.get(
                {
                    **common,
                    "step": step,
                    "questions": questions,
                    "max_new_tokens": options.max_new_tokens,
                    "temperature": temperature,
                },
                partial(_measured, options, target, directory, asked, config, temperature, errors),
            )
            for temperature in options.temperatures
        ]

    found: dict[str, Any] = {}
    found["cost"] = cost = known.get({**common, "what": "cost"}, partial(_cost, target, made.directory, config))
    found["measured_before"] = generation(made.before, 0)
    found["measured"] = generation(made.directory, made.best["step"])
    # Of drawing at temperature 1 in the places of the held-out text, at whatever temperatures that was written; of text
    # that is not the target's own, acceptance says nothing of the target's.
    if made.record["from_target"]:
        for when in ("_before", ""):
            held_out = made.record["held_out" + when]
            if held_out is not None:
                found["predicted_speedup" + when] = predicted_speedup(held_out["alpha"], options.draft_length, cost)
    return found


def _measured(
    options: Options,
    target: Loaded,
    directory: Path,
    asked: Sequence[Question],
    config: GenerateConfig,
    temperature: float,
    errors: Console,
) -> dict[str, Any]:
    """Real generation."""
    made = drafting.make(str(directory), target)
    assert made.drafter is not None
    what = f"answering at temperature {temperature} with {directory.name}"
    with _progress(errors) as tell:
        return in_generation(
            target,
            Evaluated(made.target.model, made.drafter, made.params),
            asked,
            temperature=temperature,
            config=config,
            max_new_tokens=options.max_new_tokens,
            progress=lambda count, of: tell(what, count / of),
        )


def _cost(target: Loaded, directory: Path, config: GenerateConfig) -> dict[str, float]:
    """What a guess and a verify pass cost, in steps of the target that feed one token; batch 1."""
    made, K, slots = drafting.make(str(directory), target), config.draft_length, config.capacity

    def passes(model, params, tokens: int) -> Passes:
        return Passes(model, params, tokens, slots=slots, length=slots // 4)

    step = passes(target.model, target.params, 1)
    verify = passes(made.target.model, target.params, K + 1)
    guesses = [(passes(model, made.params, tokens), times) for model, tokens, times in made.passes(K)]
    runs = {
        "step": lambda: step(_TIMED),
        "verify": lambda: verify(_TIMED),
        "draft": lambda: [run(_TIMED * times) for run, times in guesses],
    }
    for once in runs.values():
        jax.block_until_ready(once())
    seconds = {name: statistics.median(times) for name, times in in_turns(runs, 5).items()}
    return {"draft_step": seconds["draft"] / K / seconds["step"], "verify": seconds["verify"] / seconds["step"]}


_TIMED = 8  # passes at a time


@contextmanager
def _progress(console: Console) -> Iterator[Any]:
    """A bar where standard error is a terminal, and else a line whenever something was measured or begins."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading", total=1.0)
        last = [""]

        def tell(what: str, share: float | None) -> None:
            progress.update(task, description=what, completed=share or 0.0)
            begins = what.partition(":")[0]
            if share is None or what.startswith("held out") or (not console.is_terminal and begins != last[0]):
                console.print(what, style="dim")
            last[0] = begins

        yield tell

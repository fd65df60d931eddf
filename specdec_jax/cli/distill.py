"""``specdec distill``: train a drafter for a target, and say what it reaches."""

import dataclasses
import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from tyro.conf import Positional, arg

from ..bench import in_turns
from ..bench.rounds import Passes
from ..models import Loaded, load
from ..sampling import SamplingParams
from ..sharding import make_mesh
from ..state import GenerateConfig
from ..theory import tokens_of
from ..training import (
    DataError,
    HeadConfig,
    LossConfig,
    ModelConfig,
    TextConfig,
    TrainConfig,
    TrainingError,
    distil,
)
from ..training.checkpoints import alone
from ..training.distill import WORK
from ..training.evaluate import Drafting as Evaluated
from ..training.evaluate import Question, in_generation
from ..training.report import card, curves
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
    """Tokens of an answer, where that is measured."""
    temperatures: tuple[float, ...] = (0.0, 1.0)
    """Of the answers, where that is measured."""

    def __post_init__(self):
        check_integers(self, devices=(1, 2**16), max_new_tokens=(1, 2**16))
        _config(self)
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
    asked = _questions(options, target)
    mesh = None if options.devices == 1 else make_mesh(fsdp=options.devices, devices=jax.devices()[: options.devices])
    try:
        with alone(options.directory / WORK), _progress(errors) as tell:
            made = distil(
                target,
                options.directory,
                options.head if options.student == "head" else options.model,
                text=options.text,
                loss=options.loss,
                training=options.training,
                mesh=mesh,
                dtype=options.compute,
                tell=tell,
            )
    except (DataError, TrainingError, FloatingPointError, ValueError, OSError) as error:
        raise UserError(str(error)) from error
    curves(made.log, made.directory / "curves.svg")
    record = {
        "name": options.directory.resolve().name,
        "kind": {"head": "feature head", "model": "draft model"}[options.student],
        "target": target.name,
        "held_out": made.best,
        "tokens": made.tokens,
        "settings": {**made.settings, "training": dataclasses.asdict(options.training)},
        "source": "its own questions and answers" if options.text.file is None else options.text.file.name,
    }
    path = made.directory / "README.md"
    path.write_text(card(record), encoding="utf-8")
    if asked:
        record["cost"] = _cost(options, target, made.directory)
        record["measured_before"] = _measured(options, target, made.before, asked, errors)
        record["measured"] = _measured(options, target, made.directory, asked, errors)
        alphas = [*made.best["alpha"], *made.best["alpha"][-1:] * options.draft_length][: options.draft_length]
        cost = record["cost"]
        round_cost = options.draft_length * cost["draft_step"] + cost["verify"]
        record["predicted_speedup"] = tokens_of(alphas) / round_cost
        path.write_text(card(record), encoding="utf-8")
    (made.directory / "record.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    errors.print(f"{made.directory}: what --draft takes; {path.name} says what it reaches")
    shown = ("held_out", "cost", "measured_before", "measured", "predicted_speedup")
    print(json.dumps({key: record[key] for key in shown if key in record}))
    return 0


def _questions(options: Options, target: Loaded) -> list[Question]:
    """Read before anything is trained, so that a fault in the file is known at once."""
    if options.questions is None:
        return []
    asked, faults = requests.prepare(
        from_file(options.questions),
        target,
        config=_config(options),
        sampling=SamplingParams(),
        max_new_tokens=options.max_new_tokens,
        chat=True,
    )
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    return [Question(one.source.category or "all", list(one.token_ids)) for one in asked]


def _config(options: Options) -> GenerateConfig:
    return GenerateConfig(capacity=512, draft_length=options.draft_length, prefill_chunk=64)


def _measured(
    options: Options, target: Loaded, directory: Path, asked: Sequence[Question], errors: Console
) -> list[dict[str, Any]]:
    """Real generation, at each of the temperatures."""
    made = drafting.make(str(directory), target)
    assert made.drafter is not None
    found = []
    with _progress(errors) as tell:
        for temperature in options.temperatures:

            def done(count: int, of: int, temperature=temperature) -> None:
                tell(f"answering at temperature {temperature} with {directory.name}", count / of)

            found.append(
                in_generation(
                    target,
                    Evaluated(made.target.model, made.drafter, made.params),
                    asked,
                    temperature=temperature,
                    config=_config(options),
                    max_new_tokens=options.max_new_tokens,
                    progress=done,
                )
            )
    return found


def _cost(options: Options, target: Loaded, directory: Path) -> dict[str, float]:
    """What a guess and a verify pass cost, in steps of the target that feed one token; batch 1."""
    made, K, slots = drafting.make(str(directory), target), options.draft_length, _config(options).capacity

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

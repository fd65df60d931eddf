"""The whole way from a target to a drafter, of either kind."""

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike

from specdec_jax._typing import PyTree
from specdec_jax.models import Loaded
from specdec_jax.models.new_directory import new_directory

from . import batches, kept
from .checkpoints import Checkpoints, alone, begun, check_same_run
from .errors import TrainingError
from .fresh import fresh_texts
from .loop import LOG, Run, TrainConfig, TrainState, new_state, read_log, train
from .pupils import Pupil, head_pupil, known_start, model_pupil, reads_of
from .report import curves
from .settings import HeadConfig, LossConfig, ModelConfig, TextConfig
from .sharding import place_batch, place_state
from .start import check_length, check_start
from .students import total
from .teacher import Teacher, as_teacher, tokens_of
from .texts import Tell, Texts, silent, texts

DRAFTER = "drafter"
"""What ``--draft`` takes."""
WORK = "work"
"""Beside it: text, the teacher's outputs, checkpoints and log of the run."""


class Distilled(NamedTuple):
    """What came of it."""

    directory: Path
    """What ``--draft`` takes, with a card and curves for people."""
    before: Path
    """The drafter that it began as."""
    best: dict[str, Any]
    """On held-out text: loss, alpha of each guess, block_efficiency (estimated, see `students.total`), and the step."""
    log: list[dict[str, Any]]
    record: dict[str, Any]
    """What was written down about it, see `report.card`."""


def distil(
    target: Loaded,
    directory: Path,
    student: HeadConfig | ModelConfig,
    *,
    text: TextConfig,
    loss: LossConfig,
    training: TrainConfig,
    mesh: Mesh | None = None,
    dtype: DTypeLike = jnp.float32,
    named: str | None = None,
    tell: Tell = silent,
) -> Distilled:
    """Train a drafter for ``target`` and write it to ``directory / "drafter"``; ``work`` keeps what it is made of.

    Started again, it goes on where it stopped, and a drafter that is there already is left as it is. A feature head is
    written as `models.load_head` reads it, a draft model as `models.load_draft` and transformers do.

    Args:
        target: to draft for.
        directory: of the run.
        student: a feature head or a draft model, and of which shape.
        text, loss, training: see the fields of each.
        mesh: as in `train`.
        dtype: of the computation; parameters are float32.
        named: what ``--target`` takes for the target, for the card; by default its name.
        tell: told what goes on.

    Raises:
        DataError, TrainingError, FloatingPointError: see `texts`, `train` and `cached_outputs`.
        ValueError: the student does not fit the target, or the settings contradict each other.
        OSError: the disk is full, or there is something in the way that specdec did not make.
    """
    work = directory / WORK
    with alone(work):
        source = as_teacher(target, reads_of(student, target))
        told = {
            "teacher": source.identity,
            **student.told(),
            **text.told(),
            "loss": dataclasses.asdict(loss),
            "dtype": str(jnp.dtype(dtype)),
        }
        # What can be known to be wrong is said before hours of writing text.
        check_same_run(work, {**told, "training": dataclasses.asdict(training)})
        kept.check_own(directory / DRAFTER, told)
        check_settings(target, student, text, training, mesh)
        if begun(work) or (directory / DRAFTER).exists():
            start = {"drafter": known_start(target, student)}
            check_same_run(work, start)
            kept.check_own(directory / DRAFTER, start)
        found = texts(target, source, text, work, seed=training.seed, tell=tell)
        if isinstance(student, HeadConfig):
            pupil = head_pupil(target, student, found, loss, seed=training.seed, dtype=dtype)
        else:
            pupil = model_pupil(target, student, found, loss, seed=training.seed, dtype=dtype)
        identity = {**told, "read": found.digest, **pupil.identity}
        if training.batch > found.learned.rows:
            raise ValueError(f"batch is {training.batch}, but the text fills {found.learned.rows} rows; expected fewer")
        run = Run(
            pupil.student,
            pupil.frozen,
            _batches(target, source, pupil, found, text, training),
            batches.in_order(found.held_out, training.batch),
            identity,
        )

        settings = json.loads(json.dumps({**identity, "training": dataclasses.asdict(training)}))
        kept.check_own(directory / DRAFTER, settings)
        record = {
            "name": directory.resolve().name,
            "kind": "feature head" if isinstance(student, HeadConfig) else "draft model",
            "model": target.name,
            "target": named or target.name,
            "directory": str(directory / DRAFTER),
            "stored": student.storage if isinstance(student, HeadConfig) else student.dtype,
            "from_target": all(sample.temperature is not None for sample in found.samples),
            "temperatures": sorted({one.temperature for one in found.samples if one.temperature is not None}),
            "source": _source(text, found),
            "tokens": sum(len(sample.answer_ids) for sample in found.samples),
            "settings": settings,
        }

        def write(params: PyTree, held_out: Mapping[str, Any], place: Path) -> None:
            pupil.write(params, {"target": target.name, "held_out": held_out, "settings": identity}, place)

        before = work / "before"
        if not (before.exists() and begun(work)):
            shutil.rmtree(before, ignore_errors=True)
            with new_directory(before) as place:
                write(pupil.params, {}, place)

        def keep() -> Distilled:
            """Write the best that was reached, unless it is there already."""
            with Checkpoints(work, settings) as checkpoints:
                best = checkpoints.restore_best(new_state(pupil.params, training, mesh))
            step, log = int(best.step), read_log(work / LOG)
            if _held_out(log, step) is None:  # the log was lost
                log = [*log, {"step": step, "held_out": _measured(run, best, mesh)}]
            held_out = {"step": step, **(_held_out(log, step) or {})}
            made = {**record, "held_out": held_out, "held_out_before": _held_out(log, 0)}
            place = directory / DRAFTER
            there = kept.read_record(place)
            same = all(there.get(name) == made[name] for name in ("settings", "stored", "held_out"))
            if not same:

                def anew(inside: Path) -> None:
                    write(jax.device_get(best.params), held_out, inside)
                    curves(log, inside / "curves.svg")

                there = kept.replace(place, made, anew)
            return Distilled(place, before, held_out, log, there)

        try:
            train(run, pupil.params, training, work, mesh=mesh, progress=partial(_tell_line, training.steps, tell))
        except TrainingError:
            # What was reached is of use, and can be gone on from; but nothing takes the place of what went wrong.
            with contextlib.suppress(Exception):
                keep()
            raise
        return keep()


def check_settings(
    target: Loaded, student: HeadConfig | ModelConfig, text: TextConfig, training: TrainConfig, mesh: Mesh | None
) -> None:
    """Raise a ValueError for settings that contradict each other, the target or the devices."""
    if text.fresh and text.fresh_from == "student" and isinstance(student, HeadConfig):
        raise ValueError("a feature head cannot write text without its target; expected fresh_from target")
    rows = text.fresh * training.batch
    if abs(rows - round(rows)) > 1e-6:
        raise ValueError(
            f"fresh is {text.fresh} of a batch of {training.batch}, which is {rows:g} rows; expected whole rows"
        )
    check_length(target.name, target.config, text.length)
    part, devices = training.batch // training.accumulate, 1 if mesh is None else mesh.size
    if part % devices:
        raise ValueError(f"an update takes {part} rows at a time, on {devices} devices; expected a multiple of these")
    if isinstance(student, ModelConfig):
        size, known = student.draft_vocab_size, len(tokens_of(target))
        if size is not None and size > known:
            raise ValueError(f"the draft vocabulary has {size} ids; expected 1 to {known}, the target's tokens")
        check_start(target, student, text.length)


def _batches(
    target: Loaded, source: Teacher, pupil: Pupil, found: Texts, text: TextConfig, training: TrainConfig
) -> Callable[[int, PyTree], batches.Phase]:
    if not text.fresh:
        return batches.fixed(found.learned, training.batch, training.seed)
    writer = pupil.writer if text.fresh_from == "student" else lambda params: target
    assert writer is not None, "check_settings"
    fresh = fresh_texts(writer, source, found.samples, text, training.seed)
    return batches.mixed(found.learned, fresh, text.fresh, training.batch, training.seed)


def _source(text: TextConfig, found: Texts) -> str:
    if text.file is None:
        return "the target's answers to its own questions"
    if any(sample.temperature is None for sample in found.samples):
        return f"the texts of {text.file.name}"
    return f"the target's answers to the prompts of {text.file.name}"


def _held_out(log: Sequence[Mapping[str, Any]], step: int) -> dict[str, Any] | None:
    """What was measured on held-out text after so many updates, if the log has it."""
    return next((line["held_out"] for line in reversed(log) if line["step"] == step and "held_out" in line), None)


def _measured(run: Run, state: TrainState, mesh: Mesh | None) -> dict[str, Any]:
    """What the log would have."""
    frozen = run.frozen if mesh is None else place_state(run.frozen, mesh)
    measure, found = jax.jit(run.student.measure), []
    for batch in run.held_out():
        found.append(measure(state.params, frozen, batch if mesh is None else place_batch(batch, mesh)))
    measured = total(found)
    if not math.isfinite(measured["block_efficiency"] + sum(measured["loss"])):
        raise TrainingError(
            f"held out, of the best checkpoint: loss {measured['loss']}, alpha {measured['alpha']}; expected finite "
            "numbers, so look at that text"
        )
    return measured


def _tell_line(steps: int, tell: Tell, line: dict[str, Any]) -> None:
    if "held_out" in line:
        found = line["held_out"]
        alphas = ", ".join(f"{alpha:.3f}" for alpha in found["alpha"])
        tell(f"held out: alpha {alphas}, some {found['block_efficiency']:.3f} tokens a round", line["step"] / steps)
    else:
        tell(f"training: loss {line['loss']:.3f}, alpha {line['alpha'][0]:.3f}", line["step"] / steps)

"""The whole way from a target to a drafter, of either kind."""

import contextlib
import dataclasses
import json
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

from . import batches
from .checkpoints import Checkpoints, check_same_run
from .errors import TrainingError
from .fresh import fresh_texts
from .loop import LOG, Run, TrainConfig, new_state, read_log, train
from .pupils import Pupil, head_pupil, model_pupil, reads_of
from .settings import HeadConfig, LossConfig, ModelConfig, TextConfig
from .start import check_start
from .teacher import Teacher, as_teacher, tokens_of
from .texts import Tell, Texts, silent, texts

DRAFTER = "drafter"
"""What ``--draft`` takes."""
WORK = "work"
"""Beside it: text, the teacher's outputs, checkpoints and log of the run."""


class Distilled(NamedTuple):
    """What came of it."""

    directory: Path
    """What ``--draft`` takes."""
    before: Path
    """The drafter that it began as."""
    best: dict[str, Any]
    """On held-out text: loss, alpha of each guess, block_efficiency, and the step."""
    log: list[dict[str, Any]]
    tokens: int
    """Of answers that were trained on."""
    settings: dict[str, Any]
    """What the run was, as its checkpoints know it."""


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
    tell: Tell = silent,
) -> Distilled:
    """Train a drafter for ``target`` and write it to ``directory / "drafter"``; ``work`` keeps what it is made of.

    Started again, it goes on where it stopped. A feature head is written as `models.load_head` reads it, a draft model
    as `models.load_draft` and transformers do.

    Args:
        target: to draft for.
        directory: of the run.
        student: a feature head or a draft model, and of which shape.
        text, loss, training: see the fields of each.
        mesh: as in `train`.
        dtype: of the computation; parameters are float32.
        tell: told what goes on.

    Raises:
        DataError, TrainingError, FloatingPointError: see `texts`, `train` and `cached_outputs`.
        ValueError: the student does not fit the target, or the settings contradict each other.
    """
    work = directory / WORK
    source = as_teacher(target, reads_of(student, target))
    told = {
        "teacher": source.identity,
        "loss": dataclasses.asdict(loss),
        "fresh": [text.fresh, text.fresh_from, text.rows, text.max_tokens, text.capacity, list(text.temperatures)],
        "dtype": str(jnp.dtype(dtype)),
    }
    # What can be known to be wrong is said before hours of writing text.
    check_same_run(work, {**told, "training": dataclasses.asdict(training)})
    check_settings(target, student, text, training, mesh)
    found = texts(target, source, text, work, seed=training.seed, tell=tell)
    if isinstance(student, HeadConfig):
        pupil = head_pupil(target, student, found, loss, seed=training.seed, dtype=dtype)
    else:
        pupil = model_pupil(target, student, found, loss, seed=training.seed, dtype=dtype)
    identity = {"text": found.digest, **pupil.identity, **told}
    if training.batch > found.learned.rows:
        raise ValueError(f"batch is {training.batch}, but the text fills {found.learned.rows} rows; expected fewer")
    run = Run(
        pupil.student,
        pupil.frozen,
        _batches(target, source, pupil, found, text, training),
        batches.in_order(found.held_out, training.batch),
        identity,
    )

    def write(params: PyTree, log: Sequence[Mapping[str, Any]], place: Path) -> None:
        pupil.write(params, {"target": target.name, "held_out": best_of(log), "settings": identity}, place)

    before = work / "before"
    if not before.exists():
        _replaced(before, partial(write, pupil.params, []))

    def keep() -> list[dict[str, Any]]:
        """Write the best that was reached; returns the log."""
        with Checkpoints(work, {**identity, "training": dataclasses.asdict(training)}) as checkpoints:
            best = checkpoints.restore_best(new_state(pupil.params, training))
        log = read_log(work / LOG)
        _replaced(directory / DRAFTER, partial(write, jax.device_get(best.params), log))
        return log

    try:
        train(run, pupil.params, training, work, mesh=mesh, progress=partial(_tell_line, training.steps, tell))
    except TrainingError:
        with contextlib.suppress(TrainingError, OSError):  # what was reached is of use, and can be gone on from
            keep()
        raise
    log = keep()
    tokens = sum(len(sample.answer_ids) for sample in found.samples)
    return Distilled(directory / DRAFTER, before, best_of(log), log, tokens, json.loads(json.dumps(identity)))


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
    part, devices = training.batch // training.accumulate, 1 if mesh is None else mesh.size
    if part % devices:
        raise ValueError(f"an update takes {part} rows at a time, on {devices} devices; expected a multiple of these")
    if isinstance(student, ModelConfig):
        size, known = student.draft_vocab_size, len(tokens_of(target))
        if size is not None and size > known:
            raise ValueError(f"the draft vocabulary has {size} ids; expected 1 to {known}, the target's tokens")
        check_start(target, student)


def _batches(
    target: Loaded, source: Teacher, pupil: Pupil, found: Texts, text: TextConfig, training: TrainConfig
) -> Callable[[int, PyTree], batches.Phase]:
    if not text.fresh:
        return batches.fixed(found.learned, training.batch, training.seed)
    writer = pupil.writer if text.fresh_from == "student" else lambda params: target
    assert writer is not None, "check_settings"
    fresh = fresh_texts(writer, source, found.samples, text, training.seed)
    return batches.mixed(found.learned, fresh, text.fresh, training.batch, training.seed)


def _replaced(place: Path, write: Callable[[Path], None]) -> None:
    """Write a directory anew; the one of an earlier run stays until the new one is whole."""
    making, old = (place.with_name(f"{place.name}.{name}") for name in ("new", "old"))
    for left in (making, old):
        shutil.rmtree(left, ignore_errors=True)
    write(making)
    if place.exists():
        place.rename(old)
    making.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def best_of(log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The measurement with the highest block_efficiency on held-out text; nothing if there is none."""
    measured = [{"step": line["step"], **line["held_out"]} for line in log if "held_out" in line]
    return max(measured, key=lambda one: one["block_efficiency"], default={})


def _tell_line(steps: int, tell: Tell, line: dict[str, Any]) -> None:
    if "held_out" in line:
        found = line["held_out"]
        alphas = ", ".join(f"{alpha:.3f}" for alpha in found["alpha"])
        tell(f"held out: alpha {alphas}, block efficiency {found['block_efficiency']:.3f}", line["step"] / steps)
    else:
        tell(f"training: loss {line['loss']:.3f}, alpha {line['alpha'][0]:.3f}", line["step"] / steps)

"""The whole way from a target to a drafter, of either kind."""

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
from .checkpoints import Checkpoints
from .fresh import fresh_texts
from .loop import LOG, Run, TrainConfig, new_state, read_log, train
from .pupils import Pupil, head_pupil, model_pupil, reads_of
from .settings import HeadConfig, LossConfig, ModelConfig, TextConfig
from .teacher import Teacher, as_teacher
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
    found = texts(target, source, text, work, seed=training.seed, tell=tell)
    if isinstance(student, HeadConfig):
        pupil = head_pupil(target, student, found, loss, seed=training.seed, dtype=dtype)
    else:
        pupil = model_pupil(target, student, found, loss, seed=training.seed, dtype=dtype)
    identity = {
        "teacher": source.identity,
        "text": found.digest,
        **pupil.identity,
        "loss": dataclasses.asdict(loss),
        "fresh": [text.fresh, text.fresh_from, text.rows, text.max_tokens, list(text.temperatures)],
        "dtype": str(jnp.dtype(dtype)),
    }
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
    train(run, pupil.params, training, work, mesh=mesh, progress=partial(_tell_line, training.steps, tell))
    with Checkpoints(work, {**identity, "training": dataclasses.asdict(training)}) as checkpoints:
        best = checkpoints.restore_best(new_state(pupil.params, training))
    log = read_log(work / LOG)
    _replaced(directory / DRAFTER, partial(write, jax.device_get(best.params), log))
    tokens = sum(len(sample.answer_ids) for sample in found.samples)
    return Distilled(directory / DRAFTER, before, best_of(log), log, tokens, json.loads(json.dumps(identity)))


def _batches(
    target: Loaded, source: Teacher, pupil: Pupil, found: Texts, text: TextConfig, training: TrainConfig
) -> Callable[[int, PyTree], batches.Phase]:
    if not text.fresh:
        return batches.fixed(found.learned, training.batch, training.seed)
    writer = pupil.writer if text.fresh_from == "student" else lambda params: target
    if writer is None:
        raise ValueError("a feature head cannot write text without its target; expected fresh_from target")
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
    """The measurement after training with the highest block_efficiency on held-out text; nothing if there is none."""
    measured = [{"step": line["step"], **line["held_out"]} for line in log if "held_out" in line and line["step"]]
    return max(measured, key=lambda one: one["block_efficiency"], default={})


def _tell_line(steps: int, tell: Tell, line: dict[str, Any]) -> None:
    if "held_out" in line:
        found = line["held_out"]
        alphas = ", ".join(f"{alpha:.3f}" for alpha in found["alpha"])
        tell(f"held out: alpha {alphas}, block efficiency {found['block_efficiency']:.3f}", line["step"] / steps)
    else:
        tell(f"training: loss {line['loss']:.3f}, alpha {line['alpha'][0]:.3f}", line["step"] / steps)

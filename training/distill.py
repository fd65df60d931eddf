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
from specdec_jax.models import (
    LlamaConfig,
    Loaded,
    LoadedHead,
    find_head,
    head_for,
    load_head,
    model_from_config,
    save,
    save_head,
    text_model_from_config,
)
from specdec_jax.models.draft_vocabulary import write_draft_ids
from specdec_jax.models.feature_head import FeatureHeadConfig, draft_places, init_head_params

from . import batches
from .checkpoints import Checkpoints
from .fresh import fresh_texts
from .loop import LOG, Run, TrainConfig, new_state, read_log, train
from .packing import draft_vocabulary
from .settings import HeadConfig, LossConfig, ModelConfig, TextConfig
from .start import starting_model
from .students import Student, draft_model_student, feature_head_student, frozen_for_head, frozen_for_model
from .teacher import Teacher, as_teacher, head_rows
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


def distil_head(
    target: Loaded,
    directory: Path,
    *,
    head: HeadConfig,
    text: TextConfig,
    loss: LossConfig,
    training: TrainConfig,
    mesh: Mesh | None = None,
    dtype: DTypeLike = jnp.float32,
    tell: Tell = silent,
) -> Distilled:
    """Train a feature head for ``target`` and write it to ``directory / "drafter"``; ``work`` keeps what it is made of.

    Started again, it goes on where it stopped.

    Args:
        target: to draft for.
        directory: of the drafter.
        head, text, loss, training: see the fields of each.
        mesh: as in `train`.
        dtype: of the computation; parameters are float32.
        tell: told what goes on.

    Raises:
        DataError, TrainingError, FloatingPointError: see `texts`, `train` and `cached_outputs`.
    """
    before = None if head.start is None else _earlier(head.start, target)
    reads = head.reads or low_middle_high(target.config.num_layers) if before is None else before.config.hidden_layers
    source = as_teacher(target, reads)
    found = texts(target, source, text, directory / WORK, seed=training.seed, tell=tell)
    if before is None:
        config = head_config(target, head, reads)
        ids = draft_vocabulary(found.samples, num_tokens(target), config.draft_vocab_size)
        params = init_head_params(config, jax.random.key(training.seed), ids, head_rows(target.params))
    else:
        config, ids, params = before.config, before.draft_ids, before.params
    student = feature_head_student(config, steps=head.steps, decay=head.decay, dtype=dtype, **loss.options())
    frozen = frozen_for_head(target.params, ids, draft_places(ids, config.layer.vocab_size))
    shape = {"head": {**dataclasses.asdict(config), "steps": head.steps, "decay": head.decay, "start": head.start}}
    run = _run(target, source, student, frozen, found, text, loss, training, dtype, shape)

    def write(params: PyTree, log: Sequence[Mapping[str, Any]], place: Path) -> None:
        record = {"target": target.name, "held_out": best_of(log), "settings": dict(run.identity)}
        save_head(place, config, params, ids, storage=head.storage, record=_plain(record))

    return _trained(run, params, training, directory, write, found, mesh, tell)


def distil_model(
    target: Loaded,
    directory: Path,
    *,
    model: ModelConfig,
    text: TextConfig,
    loss: LossConfig,
    training: TrainConfig,
    mesh: Mesh | None = None,
    dtype: DTypeLike = jnp.float32,
    tell: Tell = silent,
) -> Distilled:
    """Train a draft model for ``target``; see `distil_head`. The files are those of a model that transformers loads.

    Raises:
        ValueError: the model to start from has another vocabulary than the target.
    """
    source = as_teacher(target)
    found = texts(target, source, text, directory / WORK, seed=training.seed, tell=tell)
    start = starting_model(target, model, seed=training.seed)
    size = model.draft_vocab_size
    ids = None if size is None else draft_vocabulary(found.samples, num_tokens(target), size)
    trained = text_model_from_config(start.config, dtype=dtype, layers=start.layers)
    student = draft_model_student(trained, draft_ids=ids, dtype=dtype, **loss.options())
    frozen = frozen_for_model(target.params, ids)
    shape = {"model": {"config": dataclasses.asdict(start.config), "from": start.origin, "draft_vocab_size": size}}
    layers = start.layers
    written = model_from_config(start.config, dtype=jnp.float32, layers=layers, num_tokens=num_tokens(target))

    def writer(params: PyTree) -> Loaded:
        return target._replace(model=written, params=params)

    run = _run(target, source, student, frozen, found, text, loss, training, dtype, shape, writer)

    def write(params: PyTree, log: Sequence[Mapping[str, Any]], place: Path) -> None:
        del log
        narrow = jax.tree.map(lambda leaf: jnp.asarray(leaf, model.dtype), params)
        beside = None if ids is None else partial(write_draft_ids, ids=ids)
        save(place, start.config, narrow, tokenizer=target.tokenizer, also=beside)

    return _trained(run, start.params, training, directory, write, found, mesh, tell)


def _earlier(name: str, target: Loaded) -> LoadedHead:
    place = find_head(name)
    if place is None:
        raise ValueError(f"{name} is no feature head; expected a directory with a drafter.json, or a head's name")
    before = load_head(place)
    head_for(before, target)
    return before


def _run(
    target: Loaded,
    source: Teacher,
    student: Student,
    frozen: PyTree,
    found: Texts,
    text: TextConfig,
    loss: LossConfig,
    training: TrainConfig,
    dtype: DTypeLike,
    shape: Mapping[str, Any],
    writer: Callable[[PyTree], Loaded] | None = None,
) -> Run:
    """``writer`` is the student as one who writes, for fresh texts of its own."""
    source_of_batches = batches.fixed(found.learned, training.batch, training.seed)
    if text.fresh:
        if text.fresh_from == "student":
            if writer is None:
                raise ValueError("a feature head cannot write text without its target; expected fresh_from target")
        else:
            writer = _the_target(target)
        assert writer is not None
        fresh = fresh_texts(writer, source, found.samples, text, training.seed)
        source_of_batches = batches.mixed(found.learned, fresh, text.fresh, training.batch, training.seed)
    identity = {
        "teacher": source.identity,
        "text": found.digest,
        **shape,
        "loss": dataclasses.asdict(loss),
        "fresh": [text.fresh, text.fresh_from, text.rows, text.max_tokens, list(text.temperatures)],
        "dtype": str(jnp.dtype(dtype)),
    }
    return Run(student, frozen, source_of_batches, batches.in_order(found.held_out, training.batch), identity)


def _the_target(target: Loaded) -> Callable[[PyTree], Loaded]:
    return lambda params: target


Write = Callable[[PyTree, Sequence[Mapping[str, Any]], Path], None]
"""Parameters, the log so far, and the directory to write."""


def _trained(
    run: Run,
    params: PyTree,
    training: TrainConfig,
    directory: Path,
    write: Write,
    found: Texts,
    mesh: Mesh | None,
    tell: Tell,
) -> Distilled:
    """Train, and write the drafter as it began and as it did best on held-out text."""
    work = directory / WORK
    before = work / "before"
    if not before.exists():
        _replaced(before, partial(write, params, []))
    train(run, params, training, work, mesh=mesh, progress=partial(_tell_line, training.steps, tell))
    with Checkpoints(work, {**run.identity, "training": dataclasses.asdict(training)}) as checkpoints:
        best = checkpoints.restore_best(new_state(params, training))
    log = read_log(work / LOG)
    _replaced(directory / DRAFTER, partial(write, jax.device_get(best.params), log))
    tokens = sum(len(sample.answer_ids) for sample in found.samples)
    return Distilled(directory / DRAFTER, before, best_of(log), log, tokens, _plain(dict(run.identity)))


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


_MULTIPLE = 64


def head_config(target: Loaded, head: HeadConfig, reads: tuple[int, ...]) -> FeatureHeadConfig:
    """A head as wide as the target, with attention in the target's shape, whatever its family."""
    V, D = head_rows(target.params).shape
    groups, size = target.config.num_kv_heads, target.config.head_size
    layer = LlamaConfig(
        vocab_size=V,
        width=D,
        mlp_width=max(1, round(8 * D / 3 / _MULTIPLE)) * _MULTIPLE,
        num_layers=head.layers,
        num_heads=max(1, D // size // groups) * groups,
        num_kv_heads=groups,
        head_size=size,
        max_positions=target.config.max_positions,
    )
    size = min(head.draft_vocab_size, num_tokens(target))
    return FeatureHeadConfig(layer, reads, hidden_width=D, draft_vocab_size=size)


def low_middle_high(num_layers: int) -> tuple[int, ...]:
    """The layers that a head reads where nobody says: near the start, in the middle, near the end."""
    return tuple(dict.fromkeys((min(2, num_layers - 1), num_layers // 2, max(num_layers - 3, 0))))


def num_tokens(target: Loaded) -> int:
    """Ids from this one up are padding of the logits."""
    width = target.model.vocab_size
    return width if target.tokenizer is None else min(width, target.tokenizer.vocab_size)


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


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))

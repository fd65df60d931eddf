"""The whole way from a target to a drafter: text, teacher, student, training, and the files."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike

from specdec_jax.models import LlamaConfig, Loaded
from specdec_jax.models.feature_head import FeatureHeadConfig, draft_places, init_head_params
from specdec_jax.models.feature_head_files import save_head

from . import batches, data
from .batches import Corpus
from .checkpoints import Checkpoints
from .loop import LOG, Run, TrainConfig, read_log, train
from .packing import Packed, draft_vocabulary, pack
from .samples import DataError, Sample, split
from .settings import HeadConfig, LossConfig, TextConfig
from .students import feature_head_student, frozen_for_head
from .teacher import Teacher, cache_key, cached_outputs, head_rows, teacher

Tell = Callable[[str, float | None], None]
"""Called with what goes on and how much of it is done, from 0 to 1, where that is known."""


def _silent(what: str, share: float | None) -> None:
    del what, share


class Texts(NamedTuple):
    """Gathered, divided, packed, and read by the teacher."""

    samples: list[Sample]
    """Those that are trained on."""
    learned: Corpus
    held_out: Corpus
    digest: str
    """Of the packed texts and of what the teacher says about them."""


class Distilled(NamedTuple):
    """What came of it."""

    directory: Path
    """What ``--draft`` takes."""
    best: dict[str, Any]
    """On held-out text: loss, alpha of each guess, block_efficiency, and the step."""
    log: list[dict[str, Any]]


def texts(
    target: Loaded, source: Teacher, settings: TextConfig, folder: Path, *, seed: int, tell: Tell = _silent
) -> Texts:
    """Gather the text of a run and what the teacher says about it; all that is on the disk already is used again.

    Raises:
        DataError: the file cannot be used, or holds too little.
    """
    samples = gather(target, settings, folder / "text", seed=seed, tell=tell)
    kept, aside = split(samples, settings.held_out)
    packed = [pack(side, settings.length) for side in (kept, aside)]
    for name, one in zip(("training", "held-out text"), packed, strict=True):
        if not len(one.tokens) or not one.learned.any():
            raise DataError(
                f"there is nothing for {name}: {len(samples)} texts in all, {len(aside)} of them held out; expected "
                "more text, or another share held out"
            )

    def outputs(packed: Packed, name: str) -> Corpus:
        def done(rows: int, of: int) -> None:
            tell(f"the target reads the {name}", rows / of)

        return Corpus(packed, cached_outputs(folder / "outputs", source, packed, progress=done))

    digest = " ".join(cache_key(source, one, "float16") for one in packed)
    return Texts(kept, outputs(packed[0], "text"), outputs(packed[1], "held-out text"), digest)


def gather(target: Loaded, settings: TextConfig, folder: Path, *, seed: int, tell: Tell = _silent) -> list[Sample]:
    """The samples of a run: from a file of texts, answers to a file of prompts, or questions and answers."""
    samples, asked = data.from_file(settings.file, target) if settings.file is not None else ([], None)
    if samples:
        return samples
    return data.gather(
        folder,
        target,
        tokens=settings.tokens,
        key=jax.random.key(seed),
        temperatures=settings.temperatures,
        rows=settings.rows,
        max_tokens=settings.max_tokens,
        asked=asked,
        progress=lambda have, want: tell("the target writes", min(have / want, 1.0)),
    )


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
    tell: Tell = _silent,
) -> Distilled:
    """Train a feature head for ``target`` and write it to ``directory``, where ``work`` keeps what it is made of.

    Started again, it goes on where it stopped.

    Args:
        target: to draft for.
        directory: of the drafter.
        head, text, loss, training: see the fields of each.
        mesh: as in `train`.
        dtype: of the computation.
        tell: told what goes on.

    Raises:
        DataError, TrainingError, FloatingPointError: see `texts`, `train` and `cached_outputs`.
    """
    work = directory / "work"
    reads = head.reads or low_middle_high(target.config.num_layers)
    source = teacher(target, reads)
    found = texts(target, source, text, work, seed=training.seed, tell=tell)
    config = head_config(target, head, reads)
    ids = draft_vocabulary(found.samples, num_tokens(target), config.draft_vocab_size)
    params = init_head_params(config, jax.random.key(training.seed), ids, head_rows(target.params))
    run = Run(
        feature_head_student(config, steps=head.steps, decay=head.decay, dtype=dtype, **loss.options()),
        frozen_for_head(target.params, ids, draft_places(ids, config.layer.vocab_size)),
        batches.fixed(found.learned, training.batch, training.seed),
        batches.in_order(found.held_out, training.batch),
        {
            "teacher": source.identity,
            "text": found.digest,
            "head": {**dataclasses.asdict(config), "steps": head.steps, "decay": head.decay},
            "loss": dataclasses.asdict(loss),
            "dtype": str(jnp.dtype(dtype)),
        },
    )
    state = train(run, params, training, work, mesh=mesh, progress=partial(_tell_line, training.steps, tell))
    with Checkpoints(work, {**run.identity, "training": dataclasses.asdict(training)}) as checkpoints:
        state = checkpoints.restore_best(state)
    log = read_log(work / LOG)
    best = best_of(log)
    record = {"target": target.name, "teacher": source.identity, "held_out": best, "settings": dict(run.identity)}
    save_head(directory, config, jax.device_get(state.params), ids, storage=head.storage, record=_plain(record))
    return Distilled(directory, best, log)


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
    """The measurement with the highest block_efficiency on held-out text."""
    measured = [{"step": line["step"], **line["held_out"]} for line in log if "held_out" in line]
    return max(measured, key=lambda one: one["block_efficiency"])


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

"""The two kinds of drafter as a distillation begins with them: parameters, measure, and how they are written."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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

from .packing import draft_vocabulary
from .settings import HeadConfig, LossConfig, ModelConfig
from .start import Start, starting_model
from .students import Student, draft_model_student, feature_head_student, frozen_for_head, frozen_for_model
from .teacher import digest, head_rows, tokens_of
from .texts import Texts

_MULTIPLE = 64


class Pupil(NamedTuple):
    """A drafter that is to be trained."""

    student: Student
    params: PyTree
    frozen: PyTree
    identity: dict[str, Any]
    """What a checkpoint of it has to agree with."""
    write: Callable[[PyTree, Mapping[str, Any], Path], None]
    """Parameters, what to write down with them, and the directory."""
    writer: Callable[[PyTree], Loaded] | None
    """It as one who writes text; None for what cannot without its target."""


def reads_of(settings: HeadConfig | ModelConfig, target: Loaded) -> tuple[int, ...]:
    """The layers of the target whose states it needs.

    Raises:
        ValueError: the target has no such layers, or a head to go on from is none or was made for another target.
    """
    if isinstance(settings, ModelConfig):
        return ()
    if settings.start is not None:
        return _earlier(settings.start, target).config.hidden_layers
    reads, count = settings.reads, target.config.num_layers
    if len({*reads}) < len(reads) or any(not 0 <= layer < count for layer in reads):
        raise ValueError(
            f"reads are {list(reads)}, but {target.name} has {count} layers; expected some of 0 to {count - 1}, each "
            "once"
        )
    return reads or low_middle_high(count)


def known_start(target: Loaded, settings: HeadConfig | ModelConfig) -> dict[str, Any]:
    """What a drafter's ``identity`` says of what is read from files, which may hold something else today.

    Raises:
        ValueError, LoadError: as `head_pupil` and `model_pupil`.
    """
    if isinstance(settings, HeadConfig):
        if settings.start is None:
            return {}
        before = _earlier(settings.start, target)
        return _head_identity(before.config, digest(before.config, before.params))
    if settings.start is None and settings.config is None:
        return {}
    return _model_identity(starting_model(target, settings, seed=0))


def _head_identity(config: FeatureHeadConfig, start: str | None) -> dict[str, Any]:
    return {"config": dataclasses.asdict(config), "start": start}


def _model_identity(start: Start) -> dict[str, Any]:
    return {"config": dataclasses.asdict(start.config), "from": start.origin, "start": start.digest}


def head_pupil(
    target: Loaded, settings: HeadConfig, found: Texts, loss: LossConfig, *, seed: int, dtype: DTypeLike
) -> Pupil:
    """A feature head: fresh, or one that goes on."""
    start = None
    if settings.start is None:
        config = head_config(target, settings, reads_of(settings, target))
        ids = _draft_ids(target, found, config.draft_vocab_size)
        params = init_head_params(config, jax.random.key(seed), ids, head_rows(target.params))
    else:
        before = _earlier(settings.start, target)
        config, ids, params = before.config, before.draft_ids, before.params
        start = digest(config, params)

    def write(params: PyTree, record: Mapping[str, Any], place: Path) -> None:
        # As JSON gives it back, so that what is loaded equals what was written.
        save_head(place, config, params, ids, storage=settings.storage, record=json.loads(json.dumps(record)))

    student = feature_head_student(config, steps=settings.steps, decay=settings.decay, dtype=dtype, **loss.options())
    identity = {**_head_identity(config, start), "draft_ids": digest(None, ids)}
    places = draft_places(ids, config.layer.vocab_size)
    return Pupil(student, params, frozen_for_head(target.params, ids, places), {"drafter": identity}, write, None)


def model_pupil(
    target: Loaded, settings: ModelConfig, found: Texts, loss: LossConfig, *, seed: int, dtype: DTypeLike
) -> Pupil:
    """A draft model, see `start.starting_model`.

    Raises:
        ValueError: it has another vocabulary than the target, or the settings contradict each other.
    """
    start = starting_model(target, settings, seed=seed)
    size = settings.draft_vocab_size
    ids = None if size is None else _draft_ids(target, found, size)
    known = tokens_of(target)
    real = int(known.max()) + 1
    holes = tuple(np.setdiff1d(np.arange(real), known).tolist())
    model = model_from_config(start.config, dtype=jnp.float32, layers=start.layers, num_tokens=real, holes=holes)
    # Logits past the tokens, or between them, are never drafted either, so nothing is learned of them.
    learned = known if ids is None and len(known) < head_rows(target.params).shape[0] else ids

    def write(params: PyTree, record: Mapping[str, Any], place: Path) -> None:
        del record  # transformers has no place for it
        narrow = jax.tree.map(lambda leaf: jnp.asarray(leaf, settings.dtype), params)
        beside = None if ids is None else partial(write_draft_ids, ids=ids)
        save(place, start.config, narrow, tokenizer=target.tokenizer, also=beside)

    trained = text_model_from_config(start.config, dtype=dtype, layers=start.layers)
    student = draft_model_student(trained, draft_ids=learned, dtype=dtype, **loss.options())
    identity = {**_model_identity(start), "draft_ids": None if learned is None else digest(None, learned)}
    return Pupil(
        student,
        start.params,
        frozen_for_model(target.params, learned),
        {"drafter": identity},
        write,
        lambda params: target._replace(model=model, params=params),
    )


def _earlier(name: str, target: Loaded) -> LoadedHead:
    place = find_head(name)
    if place is None:
        raise ValueError(f"{name} is no feature head; expected a directory with a drafter.json, or a head's name")
    before = load_head(place)
    head_for(before, target)
    return before


def head_config(target: Loaded, settings: HeadConfig, reads: tuple[int, ...]) -> FeatureHeadConfig:
    """A head as wide as the target, with attention in the target's shape, whatever its family."""
    V, D = head_rows(target.params).shape
    groups, size = target.config.num_kv_heads, target.config.head_size
    layer = LlamaConfig(
        vocab_size=V,
        width=D,
        mlp_width=max(1, round(8 * D / 3 / _MULTIPLE)) * _MULTIPLE,
        num_layers=settings.layers,
        num_heads=max(1, D // size // groups) * groups,
        num_kv_heads=groups,
        head_size=size,
        max_positions=target.config.max_positions,
    )
    known = min(settings.draft_vocab_size, len(tokens_of(target)))
    return FeatureHeadConfig(layer, reads, hidden_width=D, draft_vocab_size=known)


def low_middle_high(num_layers: int) -> tuple[int, ...]:
    """The layers that a head reads where nobody says: near the start, in the middle, near the end."""
    return tuple(dict.fromkeys((min(2, num_layers - 1), num_layers // 2, max(num_layers - 3, 0))))


def _draft_ids(target: Loaded, found: Texts, size: int) -> np.ndarray:
    return draft_vocabulary(found.samples, tokens_of(target), size)

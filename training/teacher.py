"""What a teacher says about packed texts, computed once and kept on disk.

Kept are the inputs of its head, from which all its logits follow by one product, and the states that a feature head
reads: for SmolLM2-135M and three layers 4.6 kB a token in float16, where the logits would take 98.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import Array, Bool, Float, Int, PyTree
from specdec_jax.models import Loaded, TextModel, text_model_from_config
from specdec_jax.models.int8 import refuse_int8
from specdec_jax.models.layers import linear

from .packing import Packed
from .whole_files import whole_file


class Outputs(NamedTuple):
    """For every token of a batch or of all packed rows."""

    features: Float[np.ndarray | Array, "N T D"]
    """The input of the head, which says what follows the token."""
    hidden: Float[np.ndarray | Array, "N T n E"]
    """The states after the layers asked for; n may be 0."""
    log_total: Float[np.ndarray | Array, "N T"]
    """The log of the sum of exp over all its logits, in float32: what makes probabilities of those of some tokens."""


class Teacher(NamedTuple):
    """A model to learn from."""

    model: TextModel
    params: PyTree
    hidden_layers: tuple[int, ...]
    identity: str
    """A digest of its configuration and all its parameters."""
    known: Bool[np.ndarray, "V"]
    """Which of its logits are tokens; the others are padding, which never comes out."""

    def read(self, tokens, positions, segments, dtype: str = "float16") -> Outputs:
        """Of a batch [B, T]."""
        texts = tokens, positions, segments
        return Outputs(*_read(self.model.features, self.params, *texts, self.known, jnp.dtype(dtype)))


@partial(jax.jit, static_argnums=(0, 6))
def _read(features, params, tokens, positions, segments, known, dtype):
    given, hidden = (part.astype(dtype) for part in features(params, tokens, positions, segments))
    rows = head_rows(params)

    def log_total(given: Float[Array, "T D"]) -> Float[Array, "T"]:
        logits = linear(given[None].astype(rows.dtype), rows)[0].astype(jnp.float32)
        return jax.nn.logsumexp(jnp.where(known, logits, -jnp.inf), axis=-1)

    # A text at a time, for [B, T, V] would not fit.
    return given, hidden, jax.lax.map(log_total, given)


def as_teacher(loaded: Loaded, hidden_layers: tuple[int, ...] = ()) -> Teacher:
    """A loaded model, as a teacher of students that read ``hidden_layers`` of it.

    Raises:
        ValueError: its weights were rounded to int8.
    """
    refuse_int8(loaded.params, "a teacher")
    leaves = jax.tree.leaves(loaded.params)
    layers = "stacked" if 0 not in loaded.params["layers"] else "unrolled"
    model = text_model_from_config(loaded.config, dtype=leaves[0].dtype, layers=layers, hidden_layers=hidden_layers)
    known = np.zeros(head_rows(loaded.params).shape[0], bool)
    known[tokens_of(loaded)] = True
    return Teacher(model, loaded.params, hidden_layers, digest(loaded.config, loaded.params), known)


def sound_outputs(teacher: Teacher, texts: Packed, dtype: str, rows: str) -> Outputs:
    """Of all its rows at once, on the host.

    Raises:
        FloatingPointError: of these ``rows`` a state is too large for the number format, or NaN.
    """
    read = teacher.read(texts.tokens, texts.positions, texts.segments, dtype)
    found = Outputs(*(np.asarray(array) for array in read))
    if not all(np.isfinite(array).all() for array in found):
        raise _not_finite(rows, dtype)
    return found


def _not_finite(rows: str, dtype: str) -> FloatingPointError:
    expected = (
        'numbers up to 65504, so keep them in float32 (dtype="float32")'
        if dtype == "float16"
        else "numbers, so look at the teacher's weights, and at what format they are computed in"
    )
    return FloatingPointError(f"the teacher's states of {rows} are not finite in {dtype}; expected {expected}")


def in_a_format_that_holds_them(read: Callable[[str], Outputs], told: Callable[[str], None]) -> Outputs:
    """``read("float16")``, or ``read("float32")`` where a state is too large for that; ``told`` is then told so.

    Raises:
        FloatingPointError: a state is too large for float32 too, or NaN.
    """
    try:
        return read("float16")
    except FloatingPointError:
        told("some of the target's states are too large for float16: kept in float32, in twice the room")
        return read("float32")


def tokens_of(loaded: Loaded) -> Int[np.ndarray, "n"]:
    """The ids that are tokens of a model; its logits may be wider, and have holes between them."""
    width = loaded.model.vocab_size
    if loaded.tokenizer is None:
        return np.arange(width)
    return np.setdiff1d(np.arange(min(width, loaded.tokenizer.vocab_size)), loaded.tokenizer.holes())


def digest(config: object, params: PyTree) -> str:
    """Of a configuration and of every value of its parameters, one array on the host at a time."""
    found = hashlib.blake2b(repr(config).encode(), digest_size=16)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = np.ascontiguousarray(leaf)
        found.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        found.update(array.view(np.uint8).data)
    return found.hexdigest()


def weights_digest(params: PyTree) -> str:
    """Of a model's weights as any device reads them from its files: in float32 or bfloat16, layers stacked or not."""
    found: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        # Without the layers' numbers: one after the other they are the bytes of a stack.
        name = "/".join(key for key in (str(getattr(key, "key", key)) for key in path) if not key.isdigit())
        bits = np.ascontiguousarray(np.asarray(leaf).astype(jnp.bfloat16)).view(np.uint16)
        bits = np.where(bits & 0x7F80, bits, 0)  # numbers so small that some devices make them 0
        found.setdefault(name, hashlib.blake2b(digest_size=16)).update(bits.data)
    return digest({name: one.hexdigest() for name, one in sorted(found.items())}, {})


def head_rows(params: PyTree) -> Float[Array, "V D"]:
    """What a model multiplies its features with: its head, or its embedding where the two are tied."""
    return (params["head"] if "head" in params else params["embedding"])["weight"]


# ---- the cache ----

_DONE = "done.json"
_REFUSED = "not_finite"


def cache_key(teacher: Teacher, packed: Packed, dtype: str) -> str:
    """A digest of all that the outputs depend on: teacher, its tokens, layers, texts and how they are packed, number
    format."""
    found = hashlib.blake2b(f"3 {teacher.identity} {teacher.hidden_layers} {dtype}".encode(), digest_size=16)
    for name, array in (packed._asdict() | {"known": teacher.known}).items():
        if name != "learned":
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def cached_outputs(
    folder: Path,
    teacher: Teacher,
    packed: Packed,
    *,
    dtype: str = "float16",
    batch: int = 8,
    progress: Callable[[int, int], None] = lambda done, rows: None,
) -> Outputs:
    """The outputs for all rows, as files mapped into memory; only rows that are not there yet are computed.

    Args:
        folder: of all caches; this one gets a folder of its own, named by `cache_key`.
        teacher, packed: what the outputs are of.
        dtype: float16 or float32.
        batch: rows of a pass.
        progress: called with the rows done and all rows.

    Raises:
        FloatingPointError: a state is too large for the format, or NaN; that is noted, and what lay there is deleted.
        OSError: the disk is full; what was computed stays and is gone on from.
    """
    rows = len(packed.tokens)
    place = folder / cache_key(teacher, packed, dtype)
    place.mkdir(parents=True, exist_ok=True)
    refused = _progress(place).get(_REFUSED)
    if refused is not None:
        raise _not_finite(refused, dtype)
    shapes = dict(_shapes(teacher, packed))
    files = {name: place / f"{name}.npy" for name in shapes}
    done = (
        _progress(place).get("rows", 0) if all(files[name].exists() for name in shapes if 0 not in shapes[name]) else 0
    )
    kinds = {"log_total": "float32"}
    arrays = Outputs(*(_mapped(files[name], shape, kinds.get(name, dtype)) for name, shape in shapes.items()))
    for start in range(done, rows, batch):
        stop = min(start + batch, rows)
        # The last batch is filled up, so that it needs no program of its own.
        index = np.minimum(np.arange(start, start + batch), rows - 1)
        which = f"rows {start} to {stop - 1}"
        try:
            made = sound_outputs(teacher, packed.rows(index), dtype, which)
        except FloatingPointError:
            del arrays
            _refuse(place, which)
            raise
        for array, new in zip(arrays, made, strict=True):
            array[start:stop] = new[: stop - start]
            if isinstance(array, np.memmap):
                array.flush()
        with whole_file(place / _DONE, "the teacher's outputs") as part:
            part.write_text(json.dumps({"rows": stop}))
        progress(stop, rows)
    return arrays


def _shapes(teacher: Teacher, packed: Packed) -> Iterator[tuple[str, tuple[int, ...]]]:
    one = jnp.zeros((1, packed.tokens.shape[1]), jnp.int32)
    features, hidden = jax.eval_shape(teacher.model.features, teacher.params, one, one, one)
    for name, shape in (("features", features.shape), ("hidden", hidden.shape), ("log_total", one.shape)):
        yield name, (len(packed.tokens), *shape[1:])


def _mapped(path: Path, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if 0 in shape:  # nothing to keep, and nothing that could be mapped
        return np.zeros(shape, dtype)
    if path.exists():
        return np.load(path, mmap_mode="r+")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with whole_file(path, f"{size / 1e6:,.0f} MB of the teacher's outputs") as making:
        np.lib.format.open_memmap(making, "w+", np.dtype(dtype), shape).flush()
        if hasattr(os, "posix_fallocate"):
            # Room for all of it now: a mapped file that finds the disk full later kills the process.
            with making.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, making.stat().st_size)
    return np.load(path, mmap_mode="r+")


def _progress(place: Path) -> dict[str, Any]:
    try:
        found = json.loads((place / _DONE).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _refuse(place: Path, rows: str) -> None:
    """Note that these rows do not fit the format, and leave nothing that takes room."""
    shutil.rmtree(place)
    place.mkdir()
    (place / _DONE).write_text(json.dumps({_REFUSED: rows}))


def rows_of(outputs: Outputs, index: Int[np.ndarray, "B"]) -> Outputs:
    """A batch of them, read from the disk."""
    return Outputs(*(np.asarray(array[index]) for array in outputs))

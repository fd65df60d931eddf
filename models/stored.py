"""The arrays of an orbax checkpoint, read straight into where they belong.

orbax itself holds two or three copies of an array while it restores it (of 384 MiB in float32 it takes 1.6 times as
much, in bfloat16 2.8 times), so the store that it writes, one zarr array a parameter in a database of tensorstore's, is
read here.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from specdec_jax._typing import Array

from .int8 import Int8Weight
from .leaves import Shape
from .weights import aligned, int8_rows

if TYPE_CHECKING:
    import tensorstore as ts

T = TypeVar("T")

CHUNK_BYTES = 1 << 22
"""Of an array as it is written. One is read as a whole."""

_META = "/.zarray"


def open_arrays(directory: Path) -> "dict[str, ts.TensorStore]":
    """Every array by its name, with dots between the parts of its path.

    Raises:
        Exception: whatever tensorstore raises for what is no checkpoint, or a damaged one.
    """
    import tensorstore as ts  # takes a while, which nobody else should wait for

    base = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{directory}/"}}
    context = ts.Context()
    keys = [key.decode() for key in ts.KvStore.open(base, context=context).result().list().result()]
    names = [key.removesuffix(_META) for key in keys if key.endswith(_META)]
    opened = {
        # A chunk that is lost would read as zeros.
        name: ts.open(
            {"driver": "zarr", "kvstore": {**base, "path": f"{name}/"}, "fill_missing_data_reads": False},
            open=True,
            context=context,
        )
        for name in names
    }
    return {name: array.result() for name, array in opened.items()}


def chunk_of(array: "ts.TensorStore") -> Shape:
    """What is read of it at least."""
    return tuple(array.spec().to_json()["metadata"]["chunks"])


def _parts(shape: Shape, size: Shape) -> Iterator[tuple[slice, ...]]:
    """An array in parts of a size, so that few chunks are in memory at a time."""
    starts = itertools.product(*(range(0, length, step) for length, step in zip(shape, size, strict=True)))
    for start in starts:
        yield tuple(
            slice(first, min(first + step, length)) for first, step, length in zip(start, size, shape, strict=True)
        )


def read_array(array: "ts.TensorStore", dtype: jnp.dtype, sharding: Sharding) -> Array:
    """The array in its shards, of which this process reads its own alone, each once for all devices."""
    return jax.make_array_from_callback(array.shape, sharding, _once(lambda index: _read(array, index, dtype)))


def read_int8(array: "ts.TensorStore", dtype: jnp.dtype, where: Int8Weight) -> Int8Weight:
    """The same rounded to int8, by the process that reads it: whole rows, which may be more than its shards."""
    rows = _once(lambda index: int8_rows(_read(array, (*index, slice(None)), dtype)))

    def values(index: Any) -> np.ndarray:
        return rows(index[:-1]).values[..., index[-1]]

    def scale(index: Any) -> np.ndarray:
        return rows(index).scale

    shape = tuple(array.shape)
    return Int8Weight(
        jax.make_array_from_callback(shape, where.values, values),
        jax.make_array_from_callback(shape[:-1], where.scale, scale),
    )


def _once(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """By the slices of an array, remembering what was read."""
    done: dict[str, T] = {}

    def get(index: Any) -> T:
        if str(index) not in done:
            done[str(index)] = read(index)
        return done[str(index)]

    return get


def _read(array: "ts.TensorStore", index: tuple[slice, ...], dtype: jnp.dtype) -> np.ndarray:
    import tensorstore as ts

    there = array[index][ts.d[:].translate_to[0]]
    buffer = aligned(there.shape, dtype)
    for part in _parts(there.shape, chunk_of(array)):
        buffer[part] = there[part].read().result()
    return buffer

"""The arrays of an orbax checkpoint, read straight into where they belong.

orbax itself holds two or three copies of an array while it restores it (of 384 MiB in float32 it takes 1.6 times as
much, in bfloat16 2.8 times), so the store that it writes, one zarr array a parameter in a database of tensorstore's, is
read here.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from specdec_jax._typing import Array

from .leaves import Shape
from .weights import aligned

if TYPE_CHECKING:
    import tensorstore as ts

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
    import tensorstore as ts

    chunk = chunk_of(array)
    done: dict[str, np.ndarray] = {}

    def shard(index: tuple[slice, ...] | None) -> np.ndarray:
        if str(index) not in done:
            there = array[index][ts.d[:].translate_to[0]]
            buffer = done[str(index)] = aligned(there.shape, dtype)
            for part in _parts(there.shape, chunk):
                buffer[part] = there[part].read().result()
        return done[str(index)]

    return jax.make_array_from_callback(array.shape, sharding, shard)

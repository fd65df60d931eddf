"""A GGUF file: its metadata and its tensors, dequantised one at a time."""

import mmap
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType

from .errors import LoadError

SUPPORTED = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K")
"""Tensor types that can be read."""

_MAGIC = b"GGUF"
_REQUIRED = object()


class _Reader(gguf.GGUFReader):
    """The library slices its memory map several times a string, and slicing a plain array takes a third of the time."""

    map: mmap.mmap | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "data":
            self.map = getattr(value, "_mmap", None)
        super().__setattr__(name, np.asarray(value) if name == "data" else value)


class GGUFFile:
    """Opened, memory-mapped, and known to hold only tensors that can be read."""

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            raise LoadError(f"{path} is no GGUF file: it starts with {magic!r}, expected {_MAGIC!r}; check the path")
        try:
            reader = _Reader(path)
        # The reader trusts the file, so that a damaged one may fail anywhere in it.
        except (ValueError, IndexError, KeyError, OverflowError, TypeError, MemoryError) as error:
            raise LoadError(
                f"cannot read {path} as GGUF ({type(error).__name__}: {error}); expected a whole little-endian file of "
                "version 2 or 3, so download or convert it again"
            ) from error
        if reader.endianess.name.lower() != sys.byteorder:
            raise LoadError(
                f"{path} is {reader.endianess.name.lower()}-endian and this machine {sys.byteorder}-endian; convert it "
                "with gguf-convert-endian, which the gguf package brings"
            )
        self._fields = reader.fields
        self._map = reader.map
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        if self.get("split.count", 1) > 1:
            raise LoadError(
                f"{path} is one of {self.get('split.count', 1)} parts; expected one whole file, so join them with "
                "llama-gguf-split --merge"
            )
        self._check_types()

    def _check_types(self) -> None:
        wrong = [t for t in self.tensors.values() if t.tensor_type.name not in SUPPORTED]
        if wrong:
            others = f" (and {len(wrong) - 1} more such tensors)" if len(wrong) > 1 else ""
            raise LoadError(
                f"tensor {wrong[0].name} of {self.path} has the type {wrong[0].tensor_type.name}{others}, which is not "
                f"supported; expected one of {', '.join(SUPPORTED)}, so quantise the model to one of these"
            )

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """The metadata under ``key``; without a default, a LoadError where there is none."""
        field = self._fields.get(key)
        if field is not None:
            return field.contents()
        if default is _REQUIRED:
            raise LoadError(f"{self.path} has no metadata {key}, which its architecture needs; convert it again")
        return default

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, in NumPy's order: GGUF lists the innermost size first."""
        return tuple(int(size) for size in reversed(self.tensors[name].shape))

    def read(self, name: str) -> np.ndarray:
        """One tensor, dequantised: float32, or float16 where the file has that."""
        self._forget()
        tensor = self.tensors[name]
        if tensor.tensor_type == GGMLQuantizationType.F16:
            return np.asarray(tensor.data)
        return gguf.dequantize(tensor.data, tensor.tensor_type)

    def _forget(self) -> None:
        """Let go of the pages read so far, which would count as memory of this process until another needs it."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

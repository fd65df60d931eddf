"""A GGUF file: its metadata and its tensors, dequantised one at a time."""

import mmap
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType

from .errors import LoadError
from .gguf_header import Header

_REQUIRED = object()


def _is_readable(kind: GGMLQuantizationType) -> bool:
    """Whether the gguf package can dequantise a block of it, which only trying tells."""
    try:
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


SUPPORTED = tuple(kind.name for kind in GGMLQuantizationType if _is_readable(kind))
"""Tensor types that can be read: all that the gguf package can dequantise."""


class GGUFFile:
    """Opened, memory-mapped, and known to hold only tensors that can be read."""

    def __init__(self, path: Path):
        self.path = path
        self._header = Header(path)
        self.tensors = self._header.tensors
        parts = self.get("split.count", 1, kind=int)
        if parts > 1:
            raise LoadError(
                f"{path} is one of {parts} parts; expected one whole file, so join them with llama-gguf-split --merge"
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

    def get(self, key: str, default: Any = _REQUIRED, *, kind: type | None = None) -> Any:
        """The metadata under ``key``; without a default, a LoadError where there is none.

        With a ``kind``, a LoadError too where the file has a value of another kind.
        """
        field = self._header.fields.get(key)
        if field is None:
            if default is _REQUIRED:
                raise LoadError(f"{self.path} has no metadata {key}, which its architecture needs; convert it again")
            return default
        value = self._header.value(field)
        if kind is not None and type(value) is not kind:
            raise LoadError(
                f"{key} of {self.path} is {_short(value)}; expected a value of the kind {kind.__name__}, so convert it "
                "again"
            )
        return value

    def items(self, key: str, kind: type, default: Any = _REQUIRED) -> list[Any]:
        """The list under ``key``, whose items are of one ``kind``."""
        values = self.get(key, default, kind=list)
        if values and type(values[0]) is not kind:  # a file names the kind once for all items
            raise LoadError(
                f"{key} of {self.path} begins with {_short(values[0])}; expected items of the kind {kind.__name__}, so "
                "convert it again"
            )
        return values

    def under(self, prefix: str) -> dict[str, Any]:
        """The single values whose keys begin so, as those of an architecture do."""
        fields = self._header.fields.items()
        return {
            key: self._header.value(field) for key, field in fields if key.startswith(prefix) and field.length is None
        }

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, in NumPy's order: GGUF lists the innermost size first."""
        return self.tensors[name].shape[::-1]

    def read(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """One tensor or some of its rows, dequantised: float32, or float16 where the file has that."""
        self._forget()
        tensor = self.tensors[name]
        shape = self.shape(name)
        stored = self._header.data(tensor).reshape(*(shape[:-1] or (1,)), -1)  # each row in whole blocks
        if len(shape) > 1:
            stored = stored[rows]
        if tensor.tensor_type == GGMLQuantizationType.F16:
            array = stored.view(np.float16)
        else:
            array = gguf.dequantize(stored, tensor.tensor_type)
        return array if len(shape) > 1 else array.reshape(shape)[rows]

    def _forget(self) -> None:
        """Let go of the pages read so far, which would count as memory of this process until another needs it."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._header.bytes.madvise(mmap.MADV_DONTNEED)


def _short(value: Any) -> str:
    text = repr(value[:4] if isinstance(value, list | str) else value)
    return f"the {type(value).__name__} {text[:80]}"

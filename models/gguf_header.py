"""What a GGUF file says it holds, checked against its size before anything is made of it.

Every count, length, shape and offset in a file may be wrong, by damage or on purpose. So none of them is trusted: what
does not fit into the file is refused, arrays are decoded only when they are asked for, and reading a header takes
memory in proportion to the entries that are really there.
"""

import mmap
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from .errors import LoadError

MAGIC = b"GGUF"

# Value kinds of metadata, by the numbers that stand in files.
_SCALARS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_STRING, _ARRAY = 8, 9

_VERSIONS = (2, 3)
_MOST_ENTRIES = 1 << 16  # metadata or tensors of a file; the largest models have a few thousand
_MOST_ITEMS = 1 << 21  # of an array; the largest vocabularies have half a million merges
_MOST_NAME = 65535  # bytes of a key, by the format
_MOST_TEXT = 1 << 24  # bytes; the longest chat templates have some ten thousand
_MOST_DIMENSIONS = 4
_LEAST_FIELD, _LEAST_TENSOR = 13, 32  # bytes of an entry with an empty name


class Field(NamedTuple):
    """One entry of the metadata: where its value lies, not yet decoded."""

    kind: int
    offset: int
    length: int | None
    """Items of an array; None for a single value."""


class Tensor(NamedTuple):
    """Where a tensor lies."""

    name: str
    tensor_type: GGMLQuantizationType
    shape: tuple[int, ...]
    """The innermost size first, as the file has it."""
    offset: int
    """From the start of the file."""
    num_bytes: int


class Header:
    """The entries of a file, and its bytes, which are mapped rather than read.

    Raises:
        LoadError: for what is no GGUF file, or one of another byte order or version, or anything that cannot be.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                magic = file.read(len(MAGIC))
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if magic == MAGIC else b""
        except OSError as error:
            raise LoadError(f"cannot read {path} ({error.strerror}); expected a GGUF file that may be read") from error
        if magic != MAGIC:
            raise LoadError(f"{path} is no GGUF file: it starts with {magic!r}, expected {MAGIC!r}; check the path")
        self._at = len(MAGIC)
        self._check_version()
        num_tensors, num_fields = self._u64(), self._u64()
        self._check_count("tensors", num_tensors, _LEAST_TENSOR, most=_MOST_ENTRIES)
        self._check_count("metadata entries", num_fields, _LEAST_FIELD, most=_MOST_ENTRIES)
        self.fields: dict[str, Field] = {}
        for _ in range(num_fields):
            self._read_field()
        self.tensors = self._read_tensors(num_tensors)

    def value(self, field: Field) -> Any:
        """What a field holds, decoded: a number, a text, or a list of either."""
        if field.kind != _STRING:
            dtype = np.dtype(_SCALARS[field.kind])
            items = np.frombuffer(self.bytes, dtype, 1 if field.length is None else field.length, field.offset)
            return items[0].item() if field.length is None else items.tolist()
        self._at = field.offset
        texts = [self._text(_MOST_TEXT) for _ in range(1 if field.length is None else field.length)]
        return texts[0] if field.length is None else texts

    def data(self, tensor: Tensor) -> np.ndarray:
        """The stored bytes of a tensor."""
        return np.frombuffer(self.bytes, np.uint8, tensor.num_bytes, tensor.offset)

    # ---- reading on from self._at ----

    def _refuse(self, why: str) -> NoReturn:
        raise LoadError(
            f"cannot read {self.path} as GGUF ({why}); expected a whole little-endian file of version 2 or 3, so "
            "download or convert it again"
        )

    def _number(self, layout: str) -> int:
        try:
            (value,) = struct.unpack_from(layout, self.bytes, self._at)
        except struct.error:
            self._refuse(f"it ends at byte {len(self.bytes)}, within its header")
        self._at += struct.calcsize(layout)
        return value

    def _u32(self) -> int:
        return self._number("<I")

    def _u64(self) -> int:
        return self._number("<Q")

    def _skip(self, size: int, what: str) -> int:
        """Step over ``size`` bytes that have to be there, and say where they start."""
        start = self._at
        if size > len(self.bytes) - start:
            self._refuse(f"{what} takes {size} bytes at byte {start}, but the file has {len(self.bytes)}")
        self._at += size
        return start

    def _text(self, most: int) -> str:
        size = self._u64()
        if size > most:
            self._refuse(f"the text at byte {self._at} claims {size} bytes; expected at most {most}")
        start = self._skip(size, "a text")
        try:
            return str(self.bytes[start : start + size], "utf-8")
        except UnicodeDecodeError:
            self._refuse(f"the text at byte {start} is not UTF-8")

    def _check_count(self, what: str, count: int, least: int, *, most: int) -> None:
        if count > most:
            self._refuse(f"it claims {count} {what}; expected at most {most}")
        if count * least > len(self.bytes) - self._at:
            self._refuse(f"it claims {count} {what} at byte {self._at}, but has {len(self.bytes)} bytes")

    def _check_version(self) -> None:
        version = self._u32()
        if version & 0xFFFF == 0:  # small numbers have their low bytes at the other end
            raise LoadError(
                f"{self.path} is big-endian and this machine {sys.byteorder}-endian; convert it with "
                "gguf-convert-endian, which the gguf package brings"
            )
        if version not in _VERSIONS:
            self._refuse(f"it has version {version}")

    def _read_field(self) -> None:
        name, kind, count = self._text(_MOST_NAME), self._u32(), None
        if name in self.fields:
            self._refuse(f"the metadata {name!r} stand in it twice")
        if kind == _ARRAY:
            kind, count = self._u32(), self._u64()
            self._check_count(f"items of {name!r}", count, 0, most=_MOST_ITEMS)
        start = self._at
        if kind == _STRING:
            for _ in range(1 if count is None else count):
                self._skip(self._u64(), f"a text of {name!r}")
        elif kind in _SCALARS:
            self._skip(np.dtype(_SCALARS[kind]).itemsize * (1 if count is None else count), f"the value of {name!r}")
        else:
            self._refuse(f"the metadata {name!r} are of the unknown kind {kind}")
        self.fields[name] = Field(kind, start, count)

    def _read_tensors(self, count: int) -> dict[str, Tensor]:
        entries = [self._read_tensor() for _ in range(count)]
        alignment = self.value(self.fields["general.alignment"]) if "general.alignment" in self.fields else 32
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            self._refuse(f"general.alignment is {alignment!r}, not a power of two")
        start = -(-self._at // alignment) * alignment
        tensors, end = {}, start
        for tensor in sorted(
            (entry._replace(offset=start + entry.offset) for entry in entries), key=lambda t: t.offset
        ):
            if tensor.name in tensors:
                self._refuse(f"the tensor {tensor.name!r} stands in it twice")
            if tensor.offset % alignment:
                self._refuse(f"the tensor {tensor.name!r} starts at byte {tensor.offset}, no multiple of {alignment}")
            if tensor.offset < end:
                self._refuse(f"the tensor {tensor.name!r} overlaps the one before it, at byte {tensor.offset}")
            end = tensor.offset + tensor.num_bytes
            if end > len(self.bytes):
                self._refuse(f"the tensor {tensor.name!r} ends at byte {end}, but the file has {len(self.bytes)}")
            tensors[tensor.name] = tensor
        return {entry.name: tensors[entry.name] for entry in entries}

    def _read_tensor(self) -> Tensor:
        name, dimensions = self._text(_MOST_NAME), self._u32()
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            self._refuse(f"the tensor {name!r} has {dimensions} dimensions; expected 1 to {_MOST_DIMENSIONS}")
        shape = tuple(self._u64() for _ in range(dimensions))
        number, offset = self._u32(), self._u64()
        try:
            kind = GGMLQuantizationType(number)
        except ValueError:
            self._refuse(f"the tensor {name!r} is of the unknown type {number}")
        block, size = GGML_QUANT_SIZES[kind]
        if min(shape) < 1 or shape[0] % block:
            self._refuse(f"the tensor {name!r} has the shape {list(shape)}, whose rows are not whole blocks of {block}")
        elements = 1
        for length in shape:
            elements *= length  # Python's integers do not overflow
        return Tensor(name, kind, shape, offset, elements // block * size)

"""A store of objects in memory, which epath takes for Google's."""

import importlib
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

OBJECTS: dict[str, Any] = {}
"""By their paths, as ``/bucket/name``."""


class Store(MemoryFileSystem):
    """One for the process, for epath keeps the first that it has met."""

    protocol = ("gcs", "gs")
    store = OBJECTS
    pseudo_dirs: ClassVar = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(f"memory://{str(path).removeprefix('gs://')}")


def stand_in(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """From now on gs:// is an empty store; returns its objects."""
    known: Any = importlib.import_module("fsspec.registry")  # the package has a mapping of that name
    patch.setitem(known._registry, "gcs", Store)
    OBJECTS.clear()
    return OBJECTS

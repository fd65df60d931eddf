"""A store of objects in memory, which epath takes for Google's."""

import importlib
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem


class Store(MemoryFileSystem):
    """One for the process, for epath keeps the first that it has met."""

    protocol = ("gcs", "gs")
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(f"memory://{str(path).removeprefix('gs://')}")


def stand_in(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """From now on gs:// is an empty store; returns its objects by their paths, as ``/bucket/name``."""
    known: Any = importlib.import_module("fsspec.registry")  # the package has a mapping of that name
    patch.setitem(known._registry, "gcs", Store)
    Store.store.clear()
    return Store.store

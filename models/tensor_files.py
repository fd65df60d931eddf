"""Tensors into a file; a full disk is an OSError, as it is for every other file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], *, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    try:
        save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as error:  # of a kind of its own, whatever went wrong
        raise OSError(
            f"cannot write {path} ({error}); expected a folder that can be written, with room on its disk"
        ) from error

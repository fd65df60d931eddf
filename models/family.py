"""What a family's file writes down, for the registry to list."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx

from .decoder import Decoder
from .gguf_file import GGUFFile
from .leaves import Spec
from .stack import Layout
from .weights import Tensors


class Build(NamedTuple):
    """How the modules of a model are made."""

    layers: Layout
    dtype: jnp.dtype
    rngs: nnx.Rngs


class Family(NamedTuple):
    """How the models of a family are built, and where their weights stand in files."""

    config: type
    build: Callable[[Any, Build], Decoder]
    config_from_hf: Callable[[Mapping[str, Any]], Any]
    """From config.json."""
    config_to_hf: Callable[[Any], dict[str, Any]]
    """And back; a ValueError for what config.json cannot say."""
    config_from_gguf: Callable[[GGUFFile], Any]
    tensors_from_gguf: Callable[[GGUFFile, Any], Tensors]
    """The file's tensors under Hugging Face's names, and in its order of rows."""
    spec: Callable[[Any], Spec]
    """The parameters, and the tensors of Hugging Face's files that they are made of."""
    spec_of_gguf: Callable[[Any], Spec] | None = None
    """The same for GGUF files, for a family whose tensors have another shape there."""
    tensors_from_hf: Callable[[Tensors], Tensors] = lambda tensors: tensors
    """The directory's tensors under the names of ``spec``, for a family whose files name them in several ways."""

"""The families this package knows, by the exact names that weight files give them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from specdec_jax._typing import PyTree

from . import llama_weights
from .errors import LoadError
from .gguf_file import GGUFFile
from .llama import LlamaConfig
from .weights import Tensors


class Family(NamedTuple):
    """How the weights of a family are read. One file a family writes these; the table below lists them."""

    config_from_hf: Callable[[Mapping[str, Any]], LlamaConfig]
    """From config.json."""
    config_from_gguf: Callable[[GGUFFile], LlamaConfig]
    tensors_from_gguf: Callable[[GGUFFile, LlamaConfig], Tensors]
    """The file's tensors under Hugging Face's names, and in its order of rows."""
    params: Callable[[LlamaConfig, Tensors, bool, jnp.dtype], PyTree]
    """Checked and assembled, stacked or not, in a dtype."""


LLAMA = Family(
    config_from_hf=llama_weights.config_from_hf,
    config_from_gguf=llama_weights.config_from_gguf,
    tensors_from_gguf=llama_weights.tensors_from_gguf,
    params=llama_weights.params,
)

HF_ARCHITECTURES: dict[str, Family] = {"LlamaForCausalLM": LLAMA, "MistralForCausalLM": LLAMA}
"""By the entry of ``architectures`` in config.json."""

HF_MODEL_TYPES: dict[str, Family] = {"llama": LLAMA, "mistral": LLAMA}
"""By ``model_type`` in config.json, where it names no architecture."""

GGUF_ARCHITECTURES: dict[str, Family] = {"llama": LLAMA}
"""By ``general.architecture``."""


def family_of(name: str | None, table: Mapping[str, Family], path: object) -> Family:
    """The family of that exact name, or a LoadError that lists the names."""
    if name is None or name not in table:
        raise LoadError(
            f"{path} has the architecture {name!r}, which is not supported; expected one of {', '.join(table)}"
        )
    return table[name]

"""The families this package knows, by the exact names that weight files give them."""

from collections.abc import Mapping

from .config import DecoderConfig
from .errors import LoadError
from .family import Family
from .gemma3 import GEMMA3
from .gpt2 import GPT2
from .llama import LLAMA
from .mistral import MISTRAL
from .phi3 import PHI3
from .qwen2 import QWEN2
from .qwen3 import QWEN3

HF_ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": GEMMA3,
    "GPT2LMHeadModel": GPT2,
    "Phi3ForCausalLM": PHI3,
}
"""By the entry of ``architectures`` in config.json."""

HF_MODEL_TYPES: dict[str, Family] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma3_text": GEMMA3,
    "gemma3": GEMMA3,
    "gpt2": GPT2,
    "phi3": PHI3,
}
"""By ``model_type`` in config.json, where it names no architecture."""

GGUF_ARCHITECTURES: dict[str, Family] = {
    "llama": LLAMA,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma3": GEMMA3,
    "gpt2": GPT2,
    "phi3": PHI3,
}
"""By ``general.architecture``. Mistral's files are llama's."""

CONFIGS: dict[type, Family] = {family.config: family for family in GGUF_ARCHITECTURES.values()}
"""By the class of a configuration."""


def family_of(name: str | None, table: Mapping[str, Family], path: object) -> Family:
    """The family of that exact name, or a LoadError that lists the names."""
    if name is None or name not in table:
        raise LoadError(
            f"{path} has the architecture {name!r}, which is not supported; expected one of {', '.join(table)}"
        )
    return table[name]


def family_of_config(config: DecoderConfig) -> Family:
    """The family whose configuration this is; a TypeError for any other."""
    family = CONFIGS.get(type(config))
    if family is None:
        known = ", ".join(kind.__name__ for kind in CONFIGS)
        raise TypeError(f"config is a {type(config).__name__}; expected one of {known}")
    return family

"""specdec_jax.models: Flax NNX language models, their weights and their tokenizers."""

from .checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from .draft_vocabulary import load_draft, narrowed
from .errors import LoadError
from .feature_head_files import LoadedHead, find_head, head_for, heads, load_head, save_head
from .gemma3 import Gemma3Config
from .gpt2 import GPT2Config
from .int8 import Int8Weight, Weights
from .language_model import (
    TextModel,
    dtype_of,
    init_params,
    model_from_config,
    param_shapes,
    param_shardings,
    quantised,
    text_model_from_config,
)
from .llama import LlamaConfig
from .load import Loaded, config_from_json, load
from .names import NAMES, Place, resolve
from .pairs import check_pair, pair
from .phi3 import Phi3Config
from .qwen2 import Qwen2Config
from .qwen3 import Qwen3Config
from .save import save
from .tokenizer import TextStream, Tokenizer

__all__ = [
    "NAMES",
    "Checkpoint",
    "GPT2Config",
    "Gemma3Config",
    "Int8Weight",
    "LlamaConfig",
    "LoadError",
    "Loaded",
    "LoadedHead",
    "Phi3Config",
    "Place",
    "Qwen2Config",
    "Qwen3Config",
    "TextModel",
    "TextStream",
    "Tokenizer",
    "Weights",
    "check_pair",
    "config_from_json",
    "dtype_of",
    "find_head",
    "head_for",
    "heads",
    "init_params",
    "load",
    "load_checkpoint",
    "load_draft",
    "load_head",
    "model_from_config",
    "narrowed",
    "pair",
    "param_shapes",
    "param_shardings",
    "quantised",
    "resolve",
    "save",
    "save_checkpoint",
    "save_head",
    "text_model_from_config",
]

"""specdec_jax.models: Flax NNX language models, their weights and their tokenizers."""

from .errors import LoadError
from .language_model import TextModel, init_params, model_from_config, text_model_from_config
from .llama import LlamaConfig
from .load import Loaded, load
from .names import NAMES, Place, resolve
from .pairs import check_pair, pair
from .tokenizer import TextStream, Tokenizer

__all__ = [
    "NAMES",
    "LlamaConfig",
    "LoadError",
    "Loaded",
    "Place",
    "TextModel",
    "TextStream",
    "Tokenizer",
    "check_pair",
    "init_params",
    "load",
    "model_from_config",
    "pair",
    "resolve",
    "text_model_from_config",
]

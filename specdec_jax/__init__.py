"""specdec_jax: lossless speculative decoding for language models, in one compiled program."""

from .control import CONTROLLERS, Controller, Costs, adaptive, constant
from .drafters import DRAFTERS, Drafter, draft_model, early_exit, feature_head, ngram
from .generate import generate, init
from .lm import FeatureModel, LanguageModel
from .round import step
from .sampling import SamplingParams
from .state import FinishReason, GenerateConfig, GenerateState, Generation, Round
from .verify import RULES

__all__ = [
    "CONTROLLERS",
    "DRAFTERS",
    "RULES",
    "Controller",
    "Costs",
    "Drafter",
    "FeatureModel",
    "FinishReason",
    "GenerateConfig",
    "GenerateState",
    "Generation",
    "LanguageModel",
    "Round",
    "SamplingParams",
    "adaptive",
    "constant",
    "draft_model",
    "early_exit",
    "feature_head",
    "generate",
    "init",
    "ngram",
    "step",
]

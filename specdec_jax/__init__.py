"""specdec_jax: lossless speculative decoding for language models, in one compiled program."""

from .drafters import DRAFTERS, Drafter, draft_model, early_exit, feature_head, ngram
from .generate import generate, init
from .lm import FeatureModel, LanguageModel
from .round import step
from .sampling import SamplingParams
from .state import FinishReason, GenerateConfig, GenerateState, Generation, Round
from .verify import RULES

__all__ = [
    "DRAFTERS",
    "RULES",
    "Drafter",
    "FeatureModel",
    "FinishReason",
    "GenerateConfig",
    "GenerateState",
    "Generation",
    "LanguageModel",
    "Round",
    "SamplingParams",
    "draft_model",
    "early_exit",
    "feature_head",
    "generate",
    "init",
    "ngram",
    "step",
]

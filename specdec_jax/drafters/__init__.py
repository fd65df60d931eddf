"""Drafters, by name. A drafter added to DRAFTERS is swept by the exactness suite at once."""

from collections.abc import Callable

from .draft_model import draft_model
from .drafter import Context, Drafter, Draw
from .early_exit import early_exit
from .feature_head import feature_head
from .ngram import ngram
from .stops import Stop, entropy_above, likeliest_below, never

DRAFTERS: dict[str, Callable[..., Drafter]] = {
    "draft_model": draft_model,
    "early_exit": early_exit,
    "feature_head": feature_head,
    "ngram": ngram,
}
"""Builders, of a LanguageModel (draft_model, early_exit), of a FeatureModel (feature_head), or of nothing (ngram)."""

__all__ = [
    "DRAFTERS",
    "Context",
    "Drafter",
    "Draw",
    "Stop",
    "draft_model",
    "early_exit",
    "entropy_above",
    "feature_head",
    "likeliest_below",
    "never",
    "ngram",
]

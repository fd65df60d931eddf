"""Drafters, by name. A drafter added to DRAFTERS is swept by the exactness suite at once."""

from collections.abc import Callable

from .draft_model import draft_model
from .drafter import Context, Drafter, Draw
from .feature_head import feature_head
from .ngram import ngram

DRAFTERS: dict[str, Callable[..., Drafter]] = {
    "draft_model": draft_model,
    "feature_head": feature_head,
    "ngram": ngram,
}
"""Builders: ``draft_model`` takes a LanguageModel, ``feature_head`` a FeatureModel, ``ngram`` needs nothing."""

__all__ = ["DRAFTERS", "Context", "Drafter", "Draw", "draft_model", "feature_head", "ngram"]

"""Drafters, by name. A drafter added to DRAFTERS is swept by the exactness suite at once."""

from collections.abc import Callable

from .draft_model import draft_model
from .drafter import Context, Drafter, Draw
from .ngram import ngram

DRAFTERS: dict[str, Callable[..., Drafter]] = {
    "draft_model": draft_model,
    "ngram": ngram,
}
"""Builders: ``draft_model`` takes a LanguageModel, ``ngram`` takes nothing that it must have."""

__all__ = ["DRAFTERS", "Context", "Drafter", "Draw", "draft_model", "ngram"]

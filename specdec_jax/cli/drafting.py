"""From ``--draft`` to a drafter."""

from typing import NamedTuple

from .._typing import PyTree
from ..drafters import Drafter, draft_model, ngram
from ..models import Loaded, load, pair
from . import UserError

_NGRAM = ngram()  # one for the process: a drafter is static, so another would compile anew


class Drafting(NamedTuple):
    """A drafter and its params; no drafter is plain decoding."""

    drafter: Drafter | None
    params: PyTree


def make(name: str, target: Loaded) -> Drafting:
    """``none``, ``ngram``, or the path or name of a model with the target's vocabulary."""
    if name == "none":
        return Drafting(None, None)
    if name == "ngram":
        return Drafting(_NGRAM, None)
    draft = load_draft(name, target)
    return Drafting(draft_model(draft.model), draft.params)


def load_draft(name: str, target: Loaded) -> Loaded:
    """A model that can draft for the target; UserError where a token does not mean the same to both."""
    draft = load(name)
    try:
        return pair(target, draft)
    except ValueError as error:
        raise UserError(str(error)) from error

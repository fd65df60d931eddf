"""From ``--draft`` to a drafter."""

from collections.abc import Callable
from typing import NamedTuple

from .._typing import PyTree
from ..drafters import Drafter, draft_model, early_exit, ngram
from ..lm import LanguageModel
from ..models import Loaded, load, pair
from . import UserError

_EXIT = "exit:"
_NGRAM = ngram()  # one for the process: a drafter is static, so another would compile anew


class Drafting(NamedTuple):
    """A drafter and its params; no drafter is plain decoding."""

    name: str
    drafter: Drafter | None
    params: PyTree
    passes: Callable[[int], list[tuple[LanguageModel, int, int]]] = lambda K: []
    """The forward passes of a round of K guesses: a model, the tokens fed, and how many times."""


def make(name: str, target: Loaded) -> Drafting:
    """``none``, ``ngram``, ``exit:M``, or the path or name of a model with the target's vocabulary."""
    if name == "none":
        return Drafting(name, None, None)
    if name == "ngram":
        return Drafting(name, _NGRAM, None)
    if name.startswith(_EXIT):
        shallow = target.variant(depth=_depth(name, target))
        return Drafting(name, early_exit(shallow), target.params, lambda K: [(shallow, 1, K)])
    draft = _load(name, target)
    model = draft.model
    return Drafting(draft.name, draft_model(model), draft.params, lambda K: [(model, 2, 1), (model, 1, K - 1)])


def _depth(name: str, target: Loaded) -> int:
    text, most = name.removeprefix(_EXIT), target.config.num_layers - 1
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise UserError(
            f"the draft is {name}; expected {_EXIT} and a number of the target's layers, from {_EXIT}1 to {_EXIT}{most}"
        )
    return int(text)


def _load(name: str, target: Loaded) -> Loaded:
    """A model that can draft for the target; UserError where a token does not mean the same to both."""
    draft = load(name)
    try:
        return pair(target, draft)
    except ValueError as error:
        raise UserError(str(error)) from error

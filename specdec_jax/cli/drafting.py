"""From ``--draft`` to a drafter."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh

from .._typing import PyTree
from ..drafters import Drafter, draft_model, early_exit, feature_head, ngram
from ..lm import FeatureModel, LanguageModel
from ..models import (
    NAMES,
    Loaded,
    LoadError,
    Weights,
    dtype_of,
    find_head,
    head_for,
    heads,
    load,
    load_draft,
    load_head,
    resolve,
)
from . import UserError

_EXIT = "exit:"
_MOST_DIGITS = 9
_NGRAM = ngram()  # one for the process: a drafter is static, so another would compile anew


class Drafting(NamedTuple):
    """A drafter and its params; no drafter is plain decoding."""

    name: str
    target: Loaded
    """As this drafter needs it built; its params are the same."""
    drafter: Drafter | None
    params: PyTree
    passes: Callable[[int], list[tuple[LanguageModel, int, int]]] = lambda K: []
    """The forward passes of a round of K guesses: a model, the tokens fed, and how many times."""
    config: str = ""
    """What its guesses depend on beside its name and params."""


def load_target(path_or_name: str, *drafts: str, **how: Any) -> Loaded:
    """`models.load` of the target, once it is known that there is something by the name of each of the ``drafts``.

    With ``weights`` of int8 it has another name, for it is another model.
    """
    for draft in filter(is_model, drafts):
        resolve(draft, known=(*NAMES, *heads()))
    target = load(path_or_name, **how)
    return target._replace(name=named(target.name, how.get("weights", "float")))


def named(name: str, weights: Weights) -> str:
    """What a model is called whose matrices are held so."""
    return name if weights == "float" else f"{name} in {weights}"


def make(name: str, target: Loaded, mesh: Mesh | None = None, *, weights: Weights = "float") -> Drafting:
    """``none``, ``ngram``, ``exit:M``, the directory or name of a feature head, or the path or name of a model.

    A model's parameters are cut over the mesh, if there is one; ``weights`` are those of a model or head.
    """
    if name == "none":
        return Drafting(name, target, None, None)
    if name == "ngram":
        return Drafting(name, target, _NGRAM, None)
    if name.startswith(_EXIT):
        depth = _depth(name, target)
        shallow, reads = target.variant(depth=depth), depth / target.config.num_layers
        return Drafting(name, target, early_exit(shallow, reads=reads), target.params, lambda K: [(shallow, 1, K)])
    head = find_head(name)
    if head is not None:
        return _head(head, target, weights)
    draft = _load(name, target, mesh, weights)
    model = draft.model
    return Drafting(
        named(draft.name, weights),
        target,
        draft_model(model),
        draft.params,
        lambda K: [(model, 2, 1), (model, 1, K - 1)],
        repr(draft.config),
    )


def is_model(name: str) -> bool:
    """Whether this ``--draft`` is a language model of its own, which others than this package can load."""
    return has_weights(name) and find_head(name) is None


def has_weights(name: str) -> bool:
    """Whether this ``--draft`` is a model or a head."""
    return name not in ("none", "ngram") and not name.startswith(_EXIT)


def _head(path: Path, target: Loaded, weights: Weights) -> Drafting:
    head = load_head(path, dtype=dtype_of(target.params), weights=weights)
    try:
        model, params = head_for(head, target)
    except ValueError as error:
        raise UserError(str(error)) from error
    built = target._replace(model=target.variant(hidden_layers=head.config.hidden_layers))
    one = _pass_of(model)
    return Drafting(
        named(head.name, weights),
        built,
        feature_head(model),
        params,
        # What it learned last makes the first guess.
        lambda K: [(one, K + 1, 1), *([(one, 1, K - 1)] if K > 1 else [])],
        repr(head.config),
    )


@functools.cache
def _pass_of(head: FeatureModel) -> LanguageModel:
    """A pass of a head over any features, to time: it reads the target's states or its own, and makes a guess."""

    def apply(params, tokens, state, lengths):
        cache, feature = state
        features = jnp.broadcast_to(feature[:, None], (*tokens.shape, feature.shape[-1]))
        out, cache = head.apply(params, features, tokens, cache, lengths)
        return head.logits(params, out[:, -1:]), None, (cache, out[:, -1])

    return LanguageModel(head.init, apply, head.vocab_size, head.max_positions)


def _depth(name: str, target: Loaded) -> int:
    text, most = name.removeprefix(_EXIT), target.config.num_layers - 1
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and 1 <= int(text) <= most):
        raise UserError(
            f"the draft is {name[:40]}; expected {_EXIT} and a number of the target's layers, from {_EXIT}1 to "
            f"{_EXIT}{most}"
        )
    return int(text)


def _load(name: str, target: Loaded, mesh: Mesh | None, weights: Weights) -> Loaded:
    """A model that can draft for the target; UserError where a token does not mean the same to both."""
    try:
        return load_draft(name, target, mesh=mesh, weights=weights)
    except LoadError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error

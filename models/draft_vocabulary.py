"""Draft models that guess only the tokens that are frequent: a smaller head, and a smaller product for each guess.

The directory is that of a whole model, so that others load it too; a list of ids beside it says which rows of the head
are used to draft. What a draft model never guesses costs acceptance and no exactness: q is zero there.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from specdec_jax._typing import Int
from specdec_jax.lm import LanguageModel

from .errors import LoadError
from .feature_head import draft_places
from .huggingface import read_json
from .int8 import Weights
from .language_model import dtype_of, model_from_config
from .load import Loaded, load
from .names import resolve
from .pairs import check_pair, pair

FILE = "draft_vocabulary.json"


def write_draft_ids(directory: Path, ids: Sequence[int] | Int[np.ndarray, "Vd"]) -> None:
    """Put the list beside a model's files."""
    (directory / FILE).write_text(json.dumps({"ids": [int(i) for i in ids]}) + "\n", encoding="utf-8")


def load_draft(
    path_or_name: str | os.PathLike[str], target: Loaded, *, mesh: Mesh | None = None, weights: Weights = "float"
) -> Loaded:
    """Load a model to draft for ``target``: fit by `pair`, and with its draft vocabulary if it brings one.

    ``mesh`` and ``weights`` are `load`'s.

    Raises:
        LoadError: as `load`, or the list of ids makes no sense.
        ValueError: as `pair`.
    """
    draft = load(path_or_name, mesh=mesh, weights=weights, check=lambda draft: check_pair(target, draft))
    path = resolve(path_or_name).path / FILE
    return pair(target, narrowed(draft, _ids(path, draft.model.vocab_size)) if path.is_file() else draft)


def narrowed(draft: Loaded, ids: Int[np.ndarray, "Vd"]) -> Loaded:
    """The same model with the head's rows for these ids alone; all other logits are -inf, and those of ids without a
    token."""
    if draft.tokenizer is not None:
        vocab = draft.tokenizer.vocab()
        ids = ids[[i < len(vocab) and vocab[i] is not None for i in ids.tolist()]]
        if not len(ids):
            raise ValueError(f"no id of the draft vocabulary is a token of {draft.name}; expected one at least")
    params = draft.params
    rows = (params["head"] if "head" in params else params["embedding"])["weight"]
    config = dataclasses.replace(draft.config, tied_head=False)  # pyright: ignore[reportArgumentType]
    layers = "stacked" if 0 not in params["layers"] else "unrolled"
    inner = model_from_config(config, dtype=dtype_of(params), layers=layers)
    whole = {**params, "head": {"weight": jax.tree.map(lambda part: part[ids], rows)}}
    width = draft.model.vocab_size
    return draft._replace(
        model=_spread(inner, width), params={"model": whole, "draft_place": draft_places(ids, width)}, config=config
    )


@functools.cache
def _spread(inner: LanguageModel, width: int) -> LanguageModel:
    def apply(params, tokens, cache, lengths):
        logits, hidden, cache = inner.apply(params["model"], tokens, cache, lengths)
        known = jnp.pad(logits, ((0, 0), (0, 0), (0, 1)), constant_values=-jnp.inf)
        return jnp.take(known, params["draft_place"], axis=-1), hidden, cache

    return inner._replace(apply=apply, vocab_size=width)


def _ids(path: Path, width: int) -> Int[np.ndarray, "Vd"]:
    ids = read_json(path).get("ids")
    if (
        not isinstance(ids, list)
        or not ids
        or any(type(i) is not int or not 0 <= i < width for i in ids)
        or sorted(set(ids)) != ids
    ):
        raise LoadError(f"{path} has no list of ascending token ids from 0 to {width - 1}; write it again")
    return np.asarray(ids, np.int32)

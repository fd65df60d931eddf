"""A target and the model that drafts for it: one tokenizer, and logits of one width."""

import functools
from itertools import zip_longest

import jax.numpy as jnp

from specdec_jax.lm import LanguageModel

from .load import Loaded

_ADVICE = "expected the same vocabulary: draft with a model of the target's family, or with ngram"


def pair(target: Loaded, draft: Loaded) -> Loaded:
    """The draft, fit to draft for the target: with logits as wide as the target's.

    Logits are often wider than the vocabulary, and not equally wide in models of several sizes. Ids past the vocabulary
    are padding, which no model emits (see `model_from_config`), so they can be cut off or added without changing what
    is drafted.

    Raises:
        ValueError: as `check_pair` does.
    """
    check_pair(target, draft)
    return draft._replace(model=_as_wide(draft.model, target.model.vocab_size))


def check_pair(target: Loaded, draft: Loaded) -> None:
    """Raise a ValueError, which names the first token that differs, unless every id means the same to both models.

    Without a tokenizer to compare by, logits of one width have to do.
    """
    if target.tokenizer is None or draft.tokenizer is None:
        if target.model.vocab_size != draft.model.vocab_size:
            raise ValueError(
                f"the logits of the target {target.name} are {target.model.vocab_size} wide and those of the draft "
                f"{draft.name} {draft.model.vocab_size}, and not both bring a tokenizer to tell padding by; {_ADVICE}"
            )
        return
    for token, (ours, theirs) in enumerate(zip_longest(target.tokenizer.vocab(), draft.tokenizer.vocab())):
        if _spelt(ours) != _spelt(theirs):
            raise ValueError(
                f"token {token} is {_shown(ours)} to the target {target.name} but {_shown(theirs)} to the draft "
                f"{draft.name}; {_ADVICE}"
            )


def _spelt(token: str | None) -> str | None:
    """GGUF files have plain spaces in tokens that Hugging Face spells with U+2581."""
    return None if token is None else token.replace("\u2581", " ")


def _shown(token: str | None) -> str:
    return "no token" if token is None else repr(token)


@functools.cache
def _as_wide(model: LanguageModel, width: int) -> LanguageModel:
    """The model with its logits cut to a width, or filled up with -inf. Kept, so that it compiles once."""
    if model.vocab_size == width:
        return model

    def apply(params, tokens, cache, lengths):
        logits, hidden, cache = model.apply(params, tokens, cache, lengths)
        more = max(width - model.vocab_size, 0)
        logits = jnp.pad(logits[:, :, :width], ((0, 0), (0, 0), (0, more)), constant_values=-jnp.inf)
        return logits, hidden, cache

    return model._replace(apply=apply, vocab_size=width)

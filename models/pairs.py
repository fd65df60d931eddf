"""A target and the model that drafts for it: one meaning for each id that both know, and logits of one width."""

import functools

import jax.numpy as jnp
import numpy as np

from specdec_jax.lm import LanguageModel

from .load import Loaded

_ADVICE = "expected the same vocabulary: draft with a model of the target's family, or with ngram"


def pair(target: Loaded, draft: Loaded) -> Loaded:
    """The draft, fit to draft for the target: with logits as wide as the target's.

    Logits are often wider than the vocabulary, and not equally wide in models of several sizes, of which one may know a
    few tokens more. Ids past the vocabulary are padding, which no model emits (see `model_from_config`), so they can be
    cut off or added without changing what is drafted. What the target does not know is never drafted, and what the
    draft does not know has a q of zero, at no cost in exactness.

    Raises:
        ValueError: as `check_pair` does.
    """
    check_pair(target, draft)
    return draft._replace(model=fit(draft.model, target.model.vocab_size, _unknown(target, draft)))


def check_pair(target: Loaded, draft: Loaded) -> None:
    """Raise a ValueError, which names the first token that differs, unless each id of both means the same to both.

    An id that only one of them has is no fault: Gemma 3 with eyes has a token more than without. Without a tokenizer to
    compare by, logits of one width have to do.
    """
    if target.tokenizer is None or draft.tokenizer is None:
        if target.model.vocab_size != draft.model.vocab_size:
            raise ValueError(
                f"the logits of the target {target.name} are {target.model.vocab_size} wide and those of the draft "
                f"{draft.name} {draft.model.vocab_size}, and not both bring a tokenizer to tell padding by; {_ADVICE}"
            )
        return
    shared = 0
    for token, (ours, theirs) in enumerate(zip(_tokens(target), _tokens(draft), strict=False)):
        if ours is None or theirs is None:
            continue
        if _spelt(ours) != _spelt(theirs):
            raise ValueError(
                f"token {token} is {ours!r} to the target {target.name} but {theirs!r} to the draft {draft.name}; "
                f"{_ADVICE}"
            )
        shared += 1
    if not shared:
        raise ValueError(f"the target {target.name} and the draft {draft.name} share no token; {_ADVICE}")


def _tokens(loaded: Loaded) -> list[str | None]:
    """The token of every id that the model can make; its tokenizer may have some past the logits."""
    return [] if loaded.tokenizer is None else loaded.tokenizer.vocab()[: loaded.model.vocab_size]


def _unknown(target: Loaded, draft: Loaded) -> tuple[int, ...]:
    """Ids that the draft can make and the target cannot, below the width of both."""
    if target.tokenizer is None or draft.tokenizer is None:
        return ()
    ours = _tokens(target)
    ours += [None] * (target.model.vocab_size - len(ours))
    pairs = enumerate(zip(ours, _tokens(draft), strict=False))
    return tuple(token for token, (known, drafted) in pairs if known is None and drafted is not None)


def _spelt(token: str) -> str:
    """GGUF files have plain spaces in tokens that Hugging Face spells with U+2581."""
    return token.replace("\u2581", " ")


@functools.cache
def fit(model: LanguageModel, width: int, unknown: tuple[int, ...] = ()) -> LanguageModel:
    """The model with its logits cut to a width or filled up with -inf, and -inf for what the target does not know.

    It reads ids past its own as its last: any guess will do after a token that it does not know. Kept, so that it
    compiles once.
    """
    if model.vocab_size == width and not unknown:
        return model
    drafted = np.ones(width, bool)
    drafted[list(unknown)] = False

    def apply(params, tokens, cache, lengths):
        logits, hidden, cache = model.apply(params, jnp.minimum(tokens, model.vocab_size - 1), cache, lengths)
        more = max(width - model.vocab_size, 0)
        logits = jnp.pad(logits[:, :, :width], ((0, 0), (0, 0), (0, more)), constant_values=-jnp.inf)
        return jnp.where(drafted[None, None], logits, -jnp.inf), hidden, cache

    return model._replace(apply=apply, vocab_size=width)

"""From ``--draft`` to a drafter."""

from typing import NamedTuple

from .._typing import PyTree
from ..drafters import Drafter, draft_model, ngram
from ..models import Loaded, load
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
    draft = load(name)
    check_vocabulary(target, draft)
    return Drafting(draft_model(draft.model), draft.params)


def check_vocabulary(target: Loaded, draft: Loaded) -> None:
    """Raise UserError unless every token id means the same to both models."""
    advice = "expected the same vocabulary: draft with a model of the target's family, or with ngram"
    if target.tokenizer is not None and draft.tokenizer is not None:
        ours, theirs = target.tokenizer.vocab(), draft.tokenizer.vocab()
        for token, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one != other:
                raise UserError(
                    f"token {token} is {one!r} to the target {target.name} but {other!r} to the draft {draft.name}; "
                    + advice
                )
        if len(ours) != len(theirs):
            raise UserError(
                f"the target {target.name} has {len(ours)} tokens but the draft {draft.name} has {len(theirs)}; "
                + advice
            )
    if target.model.vocab_size != draft.model.vocab_size:
        raise UserError(
            f"the logits of the target {target.name} are {target.model.vocab_size} wide and those of the draft "
            f"{draft.name} {draft.model.vocab_size}; {advice}"
        )

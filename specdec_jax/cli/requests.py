"""From a prompt to what the generator answers: token ids, limits, and the row's own sampling values and seed."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from ..batch import Refused, Request
from ..batch.request import check, check_rule
from ..models import Loaded, Tokenizer
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError
from .prompts import Fault, Prompt, PromptError, from_arguments

__all__ = ["Reader", "check_rule", "only", "prepare", "reader"]

Reader = Callable[[int, Prompt | Fault], Request | Refused]
"""From a prompt and its place in the input to what the generator answers; the prompt comes back as ``source``."""


def reader(
    target: Loaded,
    *,
    config: GenerateConfig,
    sampling: SamplingParams,
    max_new_tokens: int,
    chat: bool,
    now: datetime | None = None,
) -> Reader:
    """A reader; the values given here are of prompts that bring none of their own.

    ``now`` is the date that chat templates write, by default today's for all prompts.
    """
    now = datetime.now() if now is None else now
    # Ids past the tokenizer's are padding of the logits, and a tokenizer may have some past these: no prompts either.
    size, tokenizer = target.model.vocab_size, target.tokenizer
    size = size if tokenizer is None else min(size, tokenizer.vocab_size)

    def read(index: int, prompt: Prompt | Fault) -> Request | Refused:
        if isinstance(prompt, Fault):
            return Refused(index, prompt.why, prompt)
        limit = max_new_tokens if prompt.max_new_tokens is None else prompt.max_new_tokens
        try:
            ids = _token_ids(prompt, tokenizer, chat, now)
            made = Request(index, ids, sampling._replace(**prompt.sampling), limit, prompt.seed, prompt)
            check(made, config, vocab_size=size, max_positions=target.model.max_positions)
        except ValueError as error:
            return Refused(index, str(error), prompt)
        return made

    return read


def prepare(
    prompts: Sequence[Prompt | Fault],
    target: Loaded,
    *,
    config: GenerateConfig,
    sampling: SamplingParams,
    max_new_tokens: int,
    chat: bool,
) -> tuple[list[Request], list[Fault]]:
    """Requests for the prompts that can be answered, and what is wrong with the others."""
    read = reader(target, config=config, sampling=sampling, max_new_tokens=max_new_tokens, chat=chat)
    made = [read(index, prompt) for index, prompt in enumerate(prompts)]
    faults = [Fault(one.source.where, one.why) for one in made if isinstance(one, Refused)]
    return [one for one in made if isinstance(one, Request)], faults


def only(text: str, target: Loaded, **how: Any) -> Request:
    """The request of a single prompt, by the arguments of `prepare`; UserError where it cannot be answered."""
    asked, faults = prepare(from_arguments([text]), target, **how)
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    return asked[0]


def _token_ids(prompt: Prompt, tokenizer: Tokenizer | None, chat: bool, now: datetime) -> list[int]:
    if prompt.token_ids is not None:
        return prompt.token_ids
    if tokenizer is None:
        raise PromptError("the target brings no tokenizer, so text cannot be read; give token_ids in a .jsonl file")
    messages = prompt.messages
    if messages is None and chat:
        messages = [{"role": "user", "content": prompt.prompt}]
    text = prompt.prompt if messages is None else tokenizer.apply_chat_template(messages, now=now)
    assert text is not None
    lost = tokenizer.lost(text)
    if lost:
        raise PromptError(
            f"the target's vocabulary has no tokens for {lost[:20]!r}; expected a text without these characters, which "
            "would be dropped"
        )
    return tokenizer.encode(text, add_special_tokens=messages is None)  # a chat template writes its own

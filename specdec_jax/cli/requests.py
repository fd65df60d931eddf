"""From a prompt to what the generator answers: token ids, limits, and the row's own sampling values and seed."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from .._inputs import check_rule
from ..batch import Refused, Request
from ..batch.request import check
from ..models import Loaded, Tokenizer
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError
from .prompts import Fault, Prompt, PromptError, from_arguments

__all__ = ["Reader", "check_rule", "only", "prepare", "reader", "template_variables"]

_EXAMPLE = 'an object such as {"enable_thinking": false}'
_GIVEN = {"self", "messages", "add_generation_prompt", "now"}  # to Tokenizer.apply_chat_template

Reader = Callable[[int, Prompt | Fault], Request | Refused]
"""From a prompt and its place in the input to what the generator answers; the prompt comes back as ``source``."""


def reader(
    target: Loaded,
    *,
    config: GenerateConfig,
    sampling: SamplingParams,
    max_new_tokens: int,
    chat: bool,
    system: str | None = None,
    variables: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> Reader:
    """A reader; the values given here are of prompts that bring none of their own.

    With ``chat`` a text becomes what the user says. The ``system`` speaks first in conversations that do not begin with
    a message of it. ``variables`` are what the chat template asks for; ``now`` is the date that it writes, by default
    today's for all prompts.
    """
    how = {**(variables or {}), "now": datetime.now() if now is None else now}
    # Ids past the tokenizer's are padding of the logits, and a tokenizer may have some past these: no prompts either.
    size, tokenizer = target.model.vocab_size, target.tokenizer
    size = size if tokenizer is None else min(size, tokenizer.vocab_size)
    holes = frozenset() if tokenizer is None else frozenset(tokenizer.holes())

    def read(index: int, prompt: Prompt | Fault) -> Request | Refused:
        if isinstance(prompt, Fault):
            return Refused(index, prompt.why, prompt)
        limit = max_new_tokens if prompt.max_new_tokens is None else prompt.max_new_tokens
        try:
            messages = _conversation(prompt, chat, system)
            ids = _token_ids(prompt, messages, tokenizer, how)
            made = Request(index, ids, sampling._replace(**prompt.sampling), limit, prompt.seed, prompt)
            check(made, config, vocab_size=size, max_positions=target.model.max_positions)
            if (hole := next((i for i in ids if i in holes), None)) is not None:
                raise PromptError(f"the target's vocabulary has no token {hole}; expected ids of tokens alone")
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


def template_variables(text: str | None) -> dict[str, Any]:
    """From a JSON object; a ValueError for anything else, and for names that every template is given."""
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"template_json is not JSON ({error}); expected {_EXAMPLE}") from error
    if not isinstance(found, dict):
        raise ValueError(f"template_json is a JSON {type(found).__name__}; expected {_EXAMPLE}")
    taken = _GIVEN & found.keys()
    if taken:
        raise ValueError(f"template_json has {min(taken)!r}, which is given by the command; expected other names")
    return found


def _conversation(prompt: Prompt, chat: bool, system: str | None) -> list[dict[str, str]] | None:
    """What is said in roles, in front what the system says unless the prompt does so itself; None for bare text."""
    messages = prompt.messages
    if messages is None and chat and prompt.prompt is not None:
        messages = [{"role": "user", "content": prompt.prompt}]
    if messages is None or system is None or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def _token_ids(
    prompt: Prompt, messages: list[dict[str, str]] | None, tokenizer: Tokenizer | None, how: Mapping[str, Any]
) -> list[int]:
    if prompt.token_ids is not None:
        return prompt.token_ids
    if tokenizer is None:
        raise PromptError("the target brings no tokenizer, so text cannot be read; give token_ids in a .jsonl file")
    text = prompt.prompt if messages is None else tokenizer.apply_chat_template(messages, **how)
    assert text is not None
    lost = tokenizer.lost(text)
    if lost:
        raise PromptError(
            f"the target's vocabulary has no tokens for {lost[:20]!r}; expected a text without these characters, which "
            "would be dropped"
        )
    return tokenizer.encode(text, add_special_tokens=messages is None)  # a chat template writes its own

"""From a prompt to what the engine answers: token ids, limits, and the row's own sampling values and key."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from .._typing import PRNGKeyArray
from ..models import Loaded, Tokenizer
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError
from .prompts import Fault, Prompt, PromptError, from_arguments


@dataclasses.dataclass(frozen=True)
class Request:
    """A prompt that can be answered."""

    index: int
    """Its place in the input."""
    prompt: Prompt
    token_ids: list[int]
    sampling: SamplingParams
    max_new_tokens: int
    seed: int | None
    """Of its own, where it brings one."""

    def key(self, seed: int) -> PRNGKeyArray:
        """From the run's seed and the prompt's place, or from its own seed: never from the batch it lands in."""
        return jax.random.fold_in(jax.random.key(seed), self.index) if self.seed is None else jax.random.key(self.seed)


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
    requests, faults = [], []
    for index, prompt in enumerate(prompts):
        if isinstance(prompt, Fault):
            faults.append(prompt)
            continue
        try:
            own = sampling._replace(**prompt.sampling)
            own.check()
            check_rule(config, own)
            ids = _token_ids(prompt, target.tokenizer, chat)
            _check_ids(ids, target, config)
        except ValueError as error:
            faults.append(Fault(prompt.where, str(error)))
        else:
            limit = max_new_tokens if prompt.max_new_tokens is None else prompt.max_new_tokens
            requests.append(Request(index, prompt, ids, own, limit, prompt.seed))
    return requests, faults


def only(text: str, target: Loaded, **how: Any) -> Request:
    """The request of a single prompt, by the arguments of `prepare`; UserError where it cannot be answered."""
    asked, faults = prepare(from_arguments([text]), target, **how)
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    return asked[0]


def check_rule(config: GenerateConfig, sampling: SamplingParams) -> None:
    """The greedy rule samples nothing, so it takes no temperature."""
    temperature: Any = sampling.temperature
    if config.rule == "greedy" and temperature != 0:
        raise ValueError(
            f"rule is greedy, but temperature is {temperature}; expected temperature 0, or the rule block, token or "
            "coupled to sample"
        )


def _token_ids(prompt: Prompt, tokenizer: Tokenizer | None, chat: bool) -> list[int]:
    if prompt.token_ids is not None:
        return prompt.token_ids
    if tokenizer is None:
        raise PromptError("the target brings no tokenizer, so text cannot be read; give token_ids in a .jsonl file")
    if prompt.messages is not None:
        return tokenizer.encode_chat(prompt.messages)
    assert prompt.prompt is not None
    if chat:
        return tokenizer.encode_chat([{"role": "user", "content": prompt.prompt}])
    return tokenizer.encode(prompt.prompt)


def _check_ids(ids: list[int], target: Loaded, config: GenerateConfig) -> None:
    if not ids:
        raise PromptError("the prompt has no tokens; expected at least one")
    # Ids past the tokenizer's are padding of the logits, and a tokenizer may have some past these: no prompts either.
    size = target.model.vocab_size
    size = size if target.tokenizer is None else min(size, target.tokenizer.vocab_size)
    for place, token in enumerate(ids):
        if not 0 <= token < size:
            raise PromptError(f"token_ids[{place}] is {token}; expected a token id from 0 to {size - 1}")
    most = target.model.max_positions
    room = config.capacity if most is None else min(config.capacity, most)
    if len(ids) >= room:
        raise PromptError(
            f"the prompt has {len(ids)} tokens, but a row holds {room} with its answer; shorten the prompt"
            + (", or raise --capacity" if room == config.capacity else ": that is all that the target can read")
        )

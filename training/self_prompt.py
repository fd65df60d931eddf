"""A target writes its own training text: questions, as its chat template would hold them, and its answers.

A drafter is asked to guess what its target says, so what the target says is the text to learn from, and no data set is
needed. A chat model that is given its template up to where a user would speak goes on as that user.
"""

from collections.abc import Sequence
from datetime import datetime

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import PRNGKeyArray
from specdec_jax.generate import generate
from specdec_jax.models import Loaded, Tokenizer
from specdec_jax.sampling import SamplingParams
from specdec_jax.state import FinishReason, GenerateConfig

from .samples import Sample

CAPACITY = 384
_PLACEHOLDER = "WHAT-THE-USER-SAYS"
_QUESTION_TEMPERATURE = 1.0


def questions(
    target: Loaded,
    count: int,
    *,
    key: PRNGKeyArray,
    config: GenerateConfig,
    max_tokens: int = 64,
    now: datetime | None = None,
) -> list[str]:
    """Up to ``count`` things a user might say, by the target itself: rows of one batch that came to an end in time.

    Raises:
        ValueError: if the target has no chat template, or one that shows no place for what a user says.
    """
    tokenizer = _tokenizer(target)
    before = opening(tokenizer, now)
    rows = [tokenizer.encode(before, add_special_tokens=False)] * count
    said = _generate(target, rows, key, np.full(count, _QUESTION_TEMPERATURE), config, [max_tokens] * count)
    ends = set(tokenizer.eos_ids)
    whole = [ids for ids in said if ids and ids[-1] in ends]
    return [text for text in (tokenizer.decode(ids).strip() for ids in whole) if text]


def config_of(capacity: int) -> GenerateConfig:
    """How a target writes, in rows of so many tokens."""
    return GenerateConfig(capacity=capacity, prefill_chunk=64, rule="token")


def left_out(prompts: Sequence[Sequence[int]], target: Loaded, capacity: int) -> int:
    """How many prompts `answers` does not answer: empty ones, and those that leave no room."""
    return sum(not 0 < len(prompt) < _room(target, capacity) for prompt in prompts)


def _room(target: Loaded, capacity: int) -> int:
    return min(capacity, target.model.max_positions or capacity)


def opening(tokenizer: Tokenizer, now: datetime | None = None) -> str:
    """The chat template up to the place where a user speaks."""
    said = [{"role": "user", "content": _PLACEHOLDER}]
    text = tokenizer.apply_chat_template(said, add_generation_prompt=False, now=now)
    before, found, _ = text.partition(_PLACEHOLDER)
    if not found or not before:
        raise ValueError(
            "the chat template does not show where a user speaks, so the target cannot ask itself; give a file of "
            "prompts or texts instead"
        )
    return before


def answers(
    target: Loaded,
    prompts: Sequence[Sequence[int]],
    *,
    key: PRNGKeyArray,
    temperatures: Sequence[float],
    config: GenerateConfig,
    max_tokens: int | None = None,
    rows: int | None = None,
) -> list[Sample]:
    """What the target says to each prompt; prompts that leave no room are left out.

    Args:
        target: who answers.
        prompts: token ids.
        key: consumed.
        temperatures: of the prompts in turn.
        config: capacity of prompt and answer together.
        max_tokens: most tokens of an answer; an answer that is cut off is learned from too.
        rows: of the batch, filled up with rows that end at once, so that other counts of prompts compile nothing.
    """
    count = len(prompts) if rows is None else rows
    room = _room(target, config.capacity)
    fitting = [list(prompt) for prompt in prompts if 0 < len(prompt) < room]
    if not fitting:
        return []
    heats = [float(temperatures[i % len(temperatures)]) for i in range(len(fitting))]
    idle = count - len(fitting)
    said = _generate(
        target,
        fitting + [fitting[0][:1]] * idle,
        key,
        np.asarray(heats + [0.0] * idle),
        config,
        [config.capacity if max_tokens is None else max_tokens] * len(fitting) + [0] * idle,
    )
    return [Sample(p, a, t) for p, a, t in zip(fitting, said, heats, strict=False) if a]


def self_prompted(
    target: Loaded,
    *,
    key: PRNGKeyArray,
    temperatures: Sequence[float] = (0.0, 1.0),
    rows: int = 64,
    config: GenerateConfig | None = None,
    max_tokens: int | None = None,
    now: datetime | None = None,
) -> list[Sample]:
    """One batch: as many questions as come to an end, of ``rows`` begun, and the target's answers to them.

    ``now`` is the date for chat templates that write it, by default that of the clock.
    """
    config = config_of(CAPACITY) if config is None else config
    tokenizer = _tokenizer(target)
    ask, reply = jax.random.split(key)
    asked = questions(target, rows, key=ask, config=config, now=now)
    prompts = [tokenizer.encode_chat([{"role": "user", "content": text}], now=now) for text in asked]
    return answers(
        target, prompts, key=reply, temperatures=temperatures, config=config, max_tokens=max_tokens, rows=rows
    )


def _tokenizer(target: Loaded) -> Tokenizer:
    if target.tokenizer is None:
        raise ValueError(f"{target.name} brings no tokenizer, so it cannot write text; give token ids to train on")
    return target.tokenizer


def _generate(target: Loaded, rows, key, temperatures, config: GenerateConfig, max_tokens) -> list[list[int]]:
    """New ids of each row. All prompts have the shape of the capacity, so that one program serves them all."""
    prompts = np.zeros((len(rows), config.capacity), np.int32)
    for place, row in enumerate(rows):
        prompts[place, : len(row)] = row
    generation = generate(
        target.model,
        target.params,
        None,
        None,
        prompts,
        np.asarray([len(row) for row in rows]),
        key=key,
        sampling=SamplingParams(temperature=jnp.asarray(temperatures, jnp.float32)),
        config=config,
        max_new_tokens=np.asarray(max_tokens),
        eos_tokens=_tokenizer(target).eos_ids,
    )
    tokens, lengths = np.asarray(generation.tokens), np.asarray(generation.lengths)
    sound = np.asarray(generation.finish_reason) != FinishReason.NAN
    return [tokens[b, : lengths[b]].tolist() if sound[b] else [] for b in range(len(rows))]

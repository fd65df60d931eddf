"""Whole generations through few slots follow the law of the target alone: chi-square on sequences of known law."""

import numpy as np
import pytest

from specdec_jax import GenerateConfig, SamplingParams, draft_model
from specdec_jax.batch import Answer, BatchGenerator, Request
from specdec_jax.testing import (
    markov_logits,
    markov_model,
    random_logits,
    reference,
    sequence_law,
    sequence_p_value,
)

V, EACH, EOS = 4, 1500, (2,)
TARGET, PARAMS, DRAFT_PARAMS = markov_model(V), random_logits(7, V, V), random_logits(8, V, V)
GROUPS = [([1], {}, 3), ([3, 0], {"temperature": 0.7, "top_k": 3}, 2)]


@pytest.mark.heavy
def test_sequences_come_as_often_as_the_target_draws_them():
    asked = (
        Request(index, prompt, SamplingParams(**values), limit)
        for index, (prompt, values, limit) in enumerate(GROUPS * EACH)
    )
    config = GenerateConfig(capacity=12, draft_length=3, rule="block", prefill_chunk=128)
    generator = BatchGenerator(
        TARGET, PARAMS, draft_model(TARGET), DRAFT_PARAMS, config=config, batch=512, seed=2024, eos_tokens=EOS
    )
    found: list[list[list[int]]] = [[] for _ in GROUPS]
    accepted = 0
    for answer in generator(asked):
        assert isinstance(answer, Answer)
        found[answer.request.index % len(GROUPS)].append(answer.token_ids)
        accepted += answer.counts.accepted
    assert accepted > EACH / 2
    for (prompt, values, limit), rows in zip(GROUPS, found, strict=True):
        law = sequence_law(
            lambda tokens, values=values: reference.distribution(markov_logits(PARAMS, tokens), **values),
            prompt,
            limit,
            EOS,
        )
        tokens = np.asarray([row + [0] * (limit - len(row)) for row in rows])
        assert len(tokens) == EACH
        assert sequence_p_value(tokens, np.asarray([len(row) for row in rows]), law) > 1e-4

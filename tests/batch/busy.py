"""A toy target with drafters, generators of them, and requests of uneven length."""

import numpy as np

from specdec_jax import GenerateConfig, SamplingParams, draft_model, early_exit, feature_head, ngram
from specdec_jax.batch import BatchGenerator, Request
from specdec_jax.testing import history_head, history_model, random_logits

V = 16
TARGET = history_model(V)
PARAMS = random_logits(0, 97, V)
WEAK = (PARAMS + random_logits(1, 97, V, spread=0.7)).astype(np.float32)
DRAFT = draft_model(TARGET)
GUESSERS = {
    "none": (None, None),
    "draft_model": (DRAFT, WEAK),
    "early_exit": (early_exit(TARGET), WEAK),
    "feature_head": (feature_head(history_head(V)), WEAK),
    "ngram": (ngram(max_ngram=3), None),
}
CAPACITY, K, SEED, EOS = 40, 3, 7, (3,)


def config(rule: str = "block", prefill_chunk: int = 128) -> GenerateConfig:
    """With a chunk of 128 three prompts are read at once; with one of 4, one, and prompts fall into two buckets."""
    return GenerateConfig(capacity=CAPACITY, draft_length=K, rule=rule, prefill_chunk=prefill_chunk)


def make(name: str = "draft_model", rule: str = "block", prefill_chunk: int = 128, **options) -> BatchGenerator:
    """A generator of the toys."""
    options = {"batch": 3, "seed": SEED, "eos_tokens": EOS} | options
    return BatchGenerator(TARGET, PARAMS, *GUESSERS[name], config=config(rule, prefill_chunk), **options)


def requests(count: int = 12, rule: str = "block") -> list[Request]:
    """Uneven prompts, limits and sampling values; every fifth brings a seed of its own."""
    draw = np.random.default_rng(3)
    warm = [SamplingParams(), SamplingParams(temperature=0.0), SamplingParams(0.6, 5, 0.9, 0.02)]
    return [
        Request(
            index=index,
            token_ids=draw.integers(0, 3, draw.integers(1, 10)).tolist(),
            sampling=SamplingParams(temperature=0.0) if rule == "greedy" else warm[index % 3],
            max_new_tokens=int(draw.integers(1, 30)),
            seed=100 + index if index % 5 == 4 else None,
        )
        for index in range(count)
    ]

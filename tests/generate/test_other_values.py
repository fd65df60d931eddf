"""The shipped `generate`, compiled as users compile it: other values compile nothing."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from toys import KEYS, MIXED, PARAMS, PROMPT_LENGTHS, PROMPTS, ROWS, TARGET, WEAK, WIDTHS, V, config

from specdec_jax import Costs, LanguageModel, SamplingParams, draft_model, generate
from specdec_jax.testing import random_logits


def counting(model: LanguageModel, traces: Counter, name: str) -> LanguageModel:
    """The model, counting how often it is traced."""

    def apply(*args):
        traces[name] += 1
        return model.apply(*args)

    return model._replace(apply=apply)


def test_other_values_compile_nothing():
    traces = Counter()
    target = counting(TARGET, traces, "target")
    drafter = draft_model(counting(TARGET, traces, "draft"))

    def call(prompts: ArrayLike = PROMPTS, lengths=PROMPT_LENGTHS, params=PARAMS, draft_params=WEAK, **options):
        options = {"key": KEYS, "sampling": MIXED, "max_new_tokens": 9, "eos_tokens": (3,)} | options
        several = config("block", verify_widths=WIDTHS)
        return generate(target, params, drafter, draft_params, prompts, lengths, config=several, **options)

    call()
    first = traces.copy()
    call(prompts=PROMPTS[::-1].copy(), lengths=PROMPT_LENGTHS[::-1].copy())
    call(prompts=jnp.asarray(PROMPTS), lengths=PROMPT_LENGTHS.tolist())
    call(params=random_logits(5, 97, V), draft_params=PARAMS)
    call(key=jax.random.key(1))
    call(key=jax.random.PRNGKey(2))
    call(sampling=SamplingParams())
    call(sampling=SamplingParams(temperature=0.3, top_k=3, top_p=0.5, min_p=0.1))
    call(sampling=SamplingParams(temperature=0))
    call(max_new_tokens=20)
    call(max_new_tokens=np.arange(ROWS))
    call(max_new_tokens=None)
    call(eos_tokens=())
    call(eos_tokens=[1, 2, 3, 4, 5, 6, 7, 8])
    call(eos_tokens=jnp.array([4, 2]))
    call(costs=Costs(0.1, [1.0, 1.3]))
    call(costs=Costs(jnp.float32(2), jnp.ones(2)))
    assert traces == first, f"traced anew: {traces - first}"

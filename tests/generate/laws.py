"""The check of whole generations by chi-square that test_law.py and test_law_on_models.py make."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from programs import brisk

from specdec_jax import (
    RULES,
    Costs,
    GenerateConfig,
    SamplingParams,
    constant,
    draft_model,
    early_exit,
    feature_head,
    generate,
    models,
    ngram,
)
from specdec_jax.testing import (
    markov_head,
    markov_logits,
    markov_model,
    random_logits,
    reference,
    sequence_law,
    sequence_p_value,
)

V, K, EACH = 4, 3, 10_000
TARGET, PARAMS = markov_model(V, order=2), random_logits(7, V, V, V)
DRAFT, DRAFT_PARAMS = draft_model(markov_model(V)), random_logits(8, V, V)
HEAD_PARAMS = random_logits(9, V, V, V)
SHAPE = models.LlamaConfig(V, 8, 12, 1, 2, 1, 4, 16)
SMALL, SMALL_PARAMS = (
    models.model_from_config(SHAPE, dtype=jnp.float32),
    models.quantised(SHAPE, jax.tree.map(lambda leaf: 8 * leaf, models.init_params(SHAPE, jax.random.key(1)))),
)
BROKEN_DRAFT_PARAMS = np.where(np.arange(V)[:, None] == 2, np.nan, DRAFT_PARAMS)

# Prompts of uneven lengths, some of which repeat themselves; sampling values; limits.
GROUPS = [
    ([1], {}, 4),
    ([0, 1, 0, 1, 0], {}, 4),
    ([3, 3], {"temperature": 0.7}, 4),
    ([2, 0, 1, 2], {"top_k": 2}, 5),
    ([1, 2, 1], {"top_p": 0.7}, 5),
    ([0, 3, 3, 3, 0, 3], {"min_p": 0.35}, 3),
    ([0, 1], {"temperature": 1.4, "top_k": 3, "top_p": 0.9, "min_p": 0.1}, 4),
    ([2, 2, 1], {"temperature": 0.0}, 4),
]
EOS = (2,)
CONSTANT = constant()
COSTS = Costs(0.1, [1.0, 1.3]).checked((1, K + 1))
WIDTH = max(len(prompt) for prompt, _, _ in GROUPS)

RECIPES = {
    "none": (None, None),
    "draft_model": (DRAFT, DRAFT_PARAMS),
    "draft_model in int8": (draft_model(SMALL), SMALL_PARAMS),
    "early_exit": (early_exit(TARGET), HEAD_PARAMS),
    "feature_head": (feature_head(markov_head(V, order=2)), HEAD_PARAMS),
    "ngram": (ngram(max_ngram=3), None),
}


ON_MODELS = ("draft_model", "draft_model in int8", "early_exit", "feature_head")
"""Those that run a model to guess; the recipes are tested in two files, for the time they take."""

SAMPLED = [name for name in RULES if name != "greedy"]  # that by equality


@cache
def laws():
    """The exact law of each group."""

    def after(values, tokens):
        return reference.distribution(markov_logits(PARAMS, tokens), **values)

    return [sequence_law(partial(after, values), prompt, limit, EOS) for prompt, values, limit in GROUPS]


@cache
def inputs():
    """A batch with EACH rows of every group, one after the other so that rows of a group are far apart."""

    def spread(values, dtype):
        return jnp.asarray(np.tile(np.array(values, dtype), EACH))

    defaults = SamplingParams._field_defaults
    sampling = SamplingParams(
        **{
            name: spread([v.get(name, default) for _, v, _ in GROUPS], np.asarray(default).dtype)
            for name, default in defaults.items()
        }
    )
    prompts = np.tile(np.array([p + [0] * (WIDTH - len(p)) for p, _, _ in GROUPS], np.int32), (EACH, 1))
    lengths = spread([len(p) for p, _, _ in GROUPS], np.int32)
    return jnp.asarray(prompts), lengths, sampling, spread([limit for _, _, limit in GROUPS], np.int32)


@partial(brisk, static_argnums=(0, 1, 3))
def answer(rule, drafter, drafter_params, controller, prompts, lengths, sampling, limits):
    return generate(
        TARGET,
        PARAMS,
        drafter,
        drafter_params,
        prompts,
        lengths,
        key=jax.random.key(2024),
        sampling=sampling,
        config=GenerateConfig(capacity=12, draft_length=K, rule=rule, prefill_chunk=4),
        max_new_tokens=limits,
        eos_tokens=EOS,
        controller=controller,
        costs=COSTS,
    )


def check(rule, drafter, drafter_params, controller=CONSTANT):
    """Every sequence comes as often as the target alone would draw it."""
    out = answer(rule, drafter, drafter_params, controller, *inputs())
    tokens, new = np.asarray(out.tokens), np.asarray(out.lengths)
    for group, law in enumerate(laws()):
        part = slice(group, None, len(GROUPS))
        p_value = sequence_p_value(tokens[part], new[part], law)
        assert p_value > 1e-4, f"group {GROUPS[group]}: p-value {p_value:.1e}"
    assert drafter is None or out.stats.accepted.sum() > 0

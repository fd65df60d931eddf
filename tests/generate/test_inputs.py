"""What `generate` refuses before it compiles anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import PARAMS, TARGET, V

from specdec_jax import GenerateConfig, LanguageModel, SamplingParams, draft_model, generate, init, ngram, step
from specdec_jax.testing import history_model

PROMPTS, LENGTHS = np.array([[1, 2, 3], [4, 5, 0]]), np.array([3, 2])


def never(*_):
    raise RuntimeError("traced before the inputs were checked")


def call(prompts=PROMPTS, lengths=LENGTHS, *, drafter=None, target=TARGET, **options):
    config = options.pop("config", GenerateConfig(capacity=16))
    options = {"key": jax.random.key(0), "config": config} | options
    return generate(target._replace(apply=never), PARAMS, drafter, None, prompts, lengths, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": np.array([1, 2])}, r"prompts has shape \(2,\); expected token ids \[rows, slots\]"),
        ({"prompts": np.zeros((0, 3), int)}, r"prompts has shape \(0, 3\)"),
        ({"prompts": PROMPTS.astype(float)}, r"prompts has dtype float64; expected integers"),
        (
            {"lengths": np.array([1, 2, 3])},
            r"prompt_lengths has shape \(3,\); expected one length for each of the 2 rows",
        ),
        ({"lengths": np.array([3, 0])}, r"prompt of row 1 is empty"),
        ({"lengths": np.array([4, 2])}, r"prompt_lengths\[0\] is 4, but prompts has 3 slots"),
        ({"config": GenerateConfig(capacity=2)}, r"row 0 has 3 tokens, but a row holds 2"),
        ({"target": history_model(V, max_positions=2)}, r"row 0 has 3 tokens, but a row holds 2 .*max_positions 2"),
        ({"prompts": np.array([[2**32 + 1, 2, 3], [4, 5, 0]])}, r"prompts has 4294967297; expected numbers of 32 bits"),
        ({"lengths": np.array([2**32 + 3, 2])}, r"prompt_lengths has 4294967299; expected numbers of 32 bits"),
        ({"max_new_tokens": 2**31}, r"max_new_tokens has 2147483648; expected numbers of 32 bits"),
        ({"max_new_tokens": -(2**33)}, r"max_new_tokens has -8589934592; expected numbers of 32 bits"),
        ({"eos_tokens": [2**32 + 1]}, r"eos_tokens has 4294967297; expected numbers of 32 bits"),
        ({"key": 0}, r"key is 0; expected a key of JAX's, such as jax\.random\.key"),
        ({"key": np.zeros(3, np.uint32)}, r"key has the shape \(3,\) .*expected a key of JAX's"),
        ({"key": np.uint32(7)}, r"key has the shape \(\) .*expected a key of JAX's"),
        ({"key": jax.random.split(jax.random.key(0), (2, 3))}, r"keys of shape \(2, 3\); expected a single key or one"),
        ({"prompts": np.array([[1, V, 0], [1, 2, 0]])}, rf"prompts\[0, 1\] is {V}; expected a token id in \[0, {V}\)"),
        ({"prompts": np.array([[1, 2, 0], [-1, 2, 0]])}, r"prompts\[1, 0\] is -1"),
        ({"drafter": draft_model(history_model(V + 1))}, rf"vocabulary of {V + 1} tokens and the target one of {V}"),
        ({"sampling": SamplingParams(temperature=-1.0)}, r"temperature is -1\.0"),
        ({"sampling": SamplingParams(top_p=0.0)}, r"top_p is 0\.0"),
        ({"sampling": SamplingParams(top_p=jnp.array([0.5, 0.5, 0.5]))}, r"top_p has shape \(3,\)"),
        (
            {"config": GenerateConfig(capacity=16, rule="greedy")},
            r"rule is greedy, but temperature is 1\.0; expected temperature 0",
        ),
        ({"max_new_tokens": -1}, r"max_new_tokens is -1; expected >= 0"),
        ({"max_new_tokens": np.array([1, 2, 3])}, r"max_new_tokens has shape \(3,\)"),
        ({"max_new_tokens": 1.5}, r"max_new_tokens has dtype float64; expected integers"),
        ({"eos_tokens": [1, V]}, rf"eos_tokens has {V}, which the target never draws; expected ids in \[0, {V}\)"),
        ({"eos_tokens": [-1]}, r"eos_tokens has -1"),
        ({"eos_tokens": np.array([[1]])}, r"eos_tokens has shape \(1, 1\)"),
        ({"key": jax.random.split(jax.random.key(0), 3)}, r"key holds 3 keys; expected .* 2"),
    ],
)
@pytest.mark.parametrize("jit", [lambda f: f, jax.jit], ids=["called", "in a jit"])
def test_refused(jit, options, message):
    """In a caller's jit too, for what is no argument of it is known there."""
    with pytest.raises(ValueError, match=message):
        jit(lambda: call(**options))()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "bloc"}, r"rule is 'bloc'; expected one of greedy, token, block, coupled"),
        ({"draft_length": 0}, r"draft_length is 0; expected an integer from 1 to"),
        ({"draft_length": True}, r"draft_length is True"),
        ({"draft_length": 2**31}, r"draft_length is 2147483648; expected an integer from 1 to 16777215"),
        ({"capacity": 1}, r"capacity is 1; expected an integer from 2"),
        ({"prefill_chunk": 0}, r"prefill_chunk is 0; expected an integer from 1"),
        ({"verify_widths": (1, 4)}, r"verify_widths is \(1, 4\); expected ascending widths"),
    ],
)
def test_config_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GenerateConfig(**options)


@pytest.mark.parametrize(("largest", "smallest"), [(0, 1), (2, 3), (3, 0), (True, 1)])
def test_ngram_sizes_refused(largest, smallest):
    with pytest.raises(ValueError, match=f"min_ngram is {smallest} and max_ngram {largest}; expected integers, 1 <="):
        ngram(max_ngram=largest, min_ngram=smallest)


@pytest.mark.parametrize("filler", [-100, 10**6])
def test_padding_may_hold_anything(filler):
    """A model that looks its tokens up with jnp.take has NaN for what is no token, and a weight of 0 hides none."""

    def apply(params, tokens, cache, lengths):
        found = jnp.take(params, tokens, axis=0)
        cache = jax.vmap(lambda row, new, start: jax.lax.dynamic_update_slice(row, new, (start,)))(
            cache, found[:, :, 0], lengths
        )
        slots, queries = jnp.arange(cache.shape[1]), lengths[:, None] + jnp.arange(tokens.shape[1])[None]
        weights = (slots[None, None] <= queries[:, :, None]).astype(jnp.float32)
        return found + jnp.einsum("bts,bs->bt", weights, cache)[:, :, None], None, cache

    summing = LanguageModel(lambda batch, capacity: jnp.zeros((batch, capacity), jnp.float32), apply, V)

    def rows(filler):
        prompts = np.array([[1, 2, 3], [4, 5, filler]])
        out = generate(summing, PARAMS[:V], None, None, prompts, LENGTHS, key=jax.random.key(0), max_new_tokens=4)
        return out.tokens[:, :4].tolist(), out.lengths.tolist()

    assert rows(filler) == rows(0)
    assert rows(filler)[1] == [4, 4]


def test_a_state_made_for_another_draft_length():
    options = {"key": jax.random.key(0), "sampling": SamplingParams(temperature=0.5)}
    state = init(TARGET, PARAMS, ngram(), None, PROMPTS, LENGTHS, config=GenerateConfig(capacity=16), **options)
    for drafter, config, made in (
        (ngram(), GenerateConfig(capacity=16, draft_length=2), 2),
        (None, GenerateConfig(capacity=16), 0),
    ):
        with pytest.raises(ValueError, match=f"made for rounds of 4 guesses, and this one has {made}; expected"):
            step(TARGET, PARAMS, drafter, None, state, config=config)
    with pytest.raises(ValueError, match=r"rule is greedy, but temperature is 0\.5"):
        step(TARGET, PARAMS, ngram(), None, state, config=GenerateConfig(capacity=16, rule="greedy"))


def test_a_target_whose_logits_are_not_its_vocabulary():
    target = TARGET._replace(vocab_size=V + 1)
    with pytest.raises(ValueError, match=rf"logits of shape \(2, 1, {V}\); expected \(2, 1, {V + 1}\)"):
        generate(target, PARAMS, None, None, PROMPTS, LENGTHS, key=jax.random.key(0))

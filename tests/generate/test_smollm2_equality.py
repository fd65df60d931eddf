"""Equality on real text: SmolLM2 in float32 says the same with every drafter as with none."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import brisk

from specdec_jax import (
    FinishReason,
    GenerateConfig,
    SamplingParams,
    constant,
    draft_model,
    early_exit,
    feature_head,
    generate,
    init,
    models,
    ngram,
    step,
)

pytestmark = pytest.mark.heavy

TEXTS = [
    "Repeat after me: one two three, one two three, one two",
    "The capital of France",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
]
NEW = 12
LENGTHS = np.array([1, 2, 5, 8], np.int32)
"""Most guesses in a round; a program for 8 serves them all, for `step` takes fewer as a value."""
GREEDY = GenerateConfig(capacity=64, draft_length=8, rule="greedy", prefill_chunk=16, verify_widths=(1, 9))


@pytest.fixture(scope="module")
def stacked():
    """With its layers in one scan, for these tests compile many programs and run each for a moment."""
    return models.load("smollm2-135m", dtype=jnp.float32, layers="stacked")


@pytest.fixture(scope="module")
def inputs(stacked):
    """Prompts of uneven lengths in one batch, padded on the right."""
    encoded = [stacked.tokenizer.encode(text) for text in TEXTS]
    lengths = np.array([len(ids) for ids in encoded], np.int32)
    prompts = np.array([ids + [0] * (lengths.max() - len(ids)) for ids in encoded], np.int32)
    return prompts, lengths


@pytest.fixture(scope="module")
def coupled(stacked, inputs):
    """Coupled text at a temperature, or at one for each of several copies of the prompts."""

    @partial(brisk, static_argnames=("model", "drafter", "temperatures", "K"))
    def answer(model, params, drafter, drafter_params, prompts, prompt_lengths, temperatures, K):
        return generate(
            model,
            params,
            drafter,
            drafter_params,
            prompts,
            prompt_lengths,
            key=jnp.concatenate([jax.random.split(jax.random.key(0), len(TEXTS))] * len(temperatures)),
            sampling=SamplingParams(temperature=jnp.repeat(jnp.array(temperatures), len(TEXTS))),
            config=GenerateConfig(64, K, "coupled", prefill_chunk=16, verify_widths=(K + 1,)),
            max_new_tokens=NEW,
            controller=constant(),
        )

    def say(drafter, drafter_params, *temperatures, K=1, model=stacked.model):
        copies = (np.concatenate([part] * len(temperatures)) for part in inputs)
        return answer(model, stacked.params, drafter, drafter_params, *copies, temperatures, K)

    return say


@pytest.fixture(scope="module")
def alone(coupled):
    """The text without a drafter: greedy and coupled, an array of tokens each."""
    return np.split(np.asarray(coupled(None, None, 0.0, 0.8).tokens), 2)


@partial(brisk, static_argnames=("model", "drafter"))
def rounds(model, params, drafter, drafter_params, prompts, prompt_lengths, draft_length):
    """What `generate` does, with a draft length for each row."""
    state = init(
        model,
        params,
        drafter,
        drafter_params,
        prompts,
        prompt_lengths,
        key=jax.random.key(0),
        sampling=SamplingParams(temperature=0.0),
        config=GREEDY,
        max_new_tokens=NEW,
    )

    def running(state):
        return (state.finish_reason == FinishReason.RUNNING).any()

    def body(state):
        return step(model, params, drafter, drafter_params, state, config=GREEDY, draft_length=draft_length)[0]

    return lax.while_loop(running, body, state).generation(GREEDY.capacity)


@pytest.fixture(scope="module")
def greedy(stacked, inputs, alone):
    """Checks the greedy text of each prompt with each of the draft lengths against the one without a drafter.

    Returns its statistics, an array [draft length, prompt] each.
    """

    def check(drafter, drafter_params):
        prompts, prompt_lengths = (np.concatenate([part] * len(LENGTHS)) for part in inputs)
        lengths = np.repeat(LENGTHS, len(TEXTS))
        out = rounds(stacked.model, stacked.params, drafter, drafter_params, prompts, prompt_lengths, lengths)
        assert (np.asarray(out.stats.drafted_at)[np.arange(8) >= lengths[:, None]] == 0).all()
        np.testing.assert_array_equal(out.tokens, np.tile(alone[0], (len(LENGTHS), 1)))
        stats = (out.stats.rounds, out.stats.drafted, out.stats.accepted)
        return [np.asarray(count).reshape(len(LENGTHS), -1) for count in stats]

    return check


@pytest.fixture(scope="module")
def weak(stacked):
    """SmolLM2 with every weight rounded to three binary digits: it errs now and then."""
    return jax.jit(partial(jax.tree.map, partial(lax.reduce_precision, exponent_bits=8, mantissa_bits=2)))(
        stacked.params
    )


def test_greedy_text_with_ngrams(greedy):
    _, _, accepted = greedy(ngram(), None)
    assert (accepted.sum(axis=1) > 0).all()


def test_greedy_text_with_itself_and_with_a_weaker_self_as_draft(stacked, greedy, weak):
    drafter = draft_model(stacked.model)
    made, _, _ = greedy(drafter, stacked.params)
    np.testing.assert_array_equal(made, np.broadcast_to(-(-NEW // (LENGTHS[:, None] + 1)), made.shape))
    _, drafted, accepted = greedy(drafter, weak)
    assert (accepted.sum(axis=1) > 0).all()
    assert (accepted.sum(axis=1) < drafted.sum(axis=1)).all()


@pytest.mark.parametrize("K", LENGTHS.tolist())
def test_greedy_text_of_programs_as_people_run_them(K, inputs, alone):
    """A program of its own for each draft length, its layers as they are by default, with the default verify widths and
    all of the compiler's optimisation: whatever widens a product differently would show here."""
    loaded = models.load("smollm2-135m", dtype=jnp.float32)
    out = generate(
        loaded.model,
        loaded.params,
        ngram(),
        None,
        *inputs,
        key=jax.random.key(0),
        sampling=SamplingParams(temperature=0.0),
        config=GenerateConfig(64, K, "greedy", prefill_chunk=16),
        max_new_tokens=NEW,
        controller=constant(),
    )
    np.testing.assert_array_equal(out.tokens, alone[0])
    assert int(out.stats.accepted.sum()) > 0


def test_coupled_text_belongs_to_target_and_key(coupled, alone):
    np.testing.assert_array_equal(coupled(ngram(), None, 0.8, K=2).tokens, alone[1])


def test_coupled_text_with_its_own_first_layers(stacked, coupled, alone):
    out = coupled(early_exit(stacked.variant(depth=24)), stacked.params, 0.8, K=3)
    np.testing.assert_array_equal(out.tokens, alone[1])
    assert 0 < out.summary()["acceptance_rate"] < 1


def test_coupled_text_with_the_shipped_head(stacked, coupled, alone):
    """Found by its name; its files are small, and it guesses more than a little."""
    place = models.find_head("smollm2-135m-head")
    assert place is not None
    assert sum(path.stat().st_size for path in place.iterdir()) < 20e6
    head = models.load_head(place)
    model, params = models.head_for(head, stacked)
    seeing = stacked.variant(hidden_layers=head.config.hidden_layers)
    out = coupled(feature_head(model), params, 0.8, K=3, model=seeing)
    np.testing.assert_array_equal(out.tokens, alone[1])
    assert out.summary()["accepted_at"][0] > 0.15

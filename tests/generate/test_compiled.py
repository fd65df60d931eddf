"""One compiled program: what changes compiles nothing, and it works inside other people's transformations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick
from toys import (
    CAPACITY,
    CONSTANT,
    KEYS,
    MIXED,
    PARAMS,
    PROMPT_LENGTHS,
    PROMPTS,
    ROWS,
    TARGET,
    WEAK,
    V,
    config,
    guesser,
    run,
)

from specdec_jax import (
    FinishReason,
    GenerateState,
    Round,
    SamplingParams,
    generate,
    init,
    step,
)
from specdec_jax.sampling import row_keys

pytestmark = pytest.mark.usefixtures("quick_programs")

CONSTANTLY = {"controller": CONSTANT}
"""As `run` does."""


def plain(key):
    """`generate` as most people call it; `run` is inside a jit."""
    options = {"key": key, "sampling": MIXED, "config": config("block"), "max_new_tokens": 20, **CONSTANTLY}
    return generate(TARGET, PARAMS, guesser("ngram").drafter, None, PROMPTS, PROMPT_LENGTHS, **options)


def test_inside_a_callers_jit_and_outside_come_the_same_tokens():
    inside, outside = run("block", guesser("ngram")), plain(KEYS)
    np.testing.assert_array_equal(outside.tokens, inside.raw.tokens)
    np.testing.assert_array_equal(outside.lengths, inside.raw.lengths)


def test_single_key_is_folded_with_the_rows_index():
    each = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(3), jnp.arange(ROWS, dtype=jnp.int32))
    np.testing.assert_array_equal(plain(jax.random.key(3)).tokens, plain(each).tokens)


def test_under_vmap_of_keys():
    drafter = guesser("draft_model").drafter
    keys = jax.random.split(jax.random.key(8), 3)

    def tokens(key):
        options = {"key": key, "sampling": MIXED, "config": config("block"), "max_new_tokens": 9, **CONSTANTLY}
        return generate(TARGET, PARAMS, drafter, WEAK, PROMPTS, PROMPT_LENGTHS, **options).tokens

    together = quick(jax.vmap(tokens))(keys)
    for key, found in zip(keys, together, strict=True):
        alone = run("block", guesser("draft_model"), keys=row_keys(key, ROWS), limit=9)
        np.testing.assert_array_equal(found, alone.raw.tokens)


def test_impossible_length_that_is_traced_ends_its_row_alone():
    lengths = PROMPT_LENGTHS.copy()
    lengths[1], lengths[4] = 0, PROMPTS.shape[1] + 1
    out = run("block", guesser("draft_model"), lengths=lengths)
    whole = run("block", guesser("draft_model"))
    for row in range(ROWS):
        assert out.rows[row] == ([] if row in (1, 4) else whole.rows[row])
        assert out.reasons[row] == (FinishReason.INVALID if row in (1, 4) else FinishReason.LENGTH)


def test_impossible_tokens_and_limits_that_are_traced_end_their_rows_alone():
    prompts, limits = PROMPTS.copy(), np.full(ROWS, 9)
    prompts[1, 0], prompts[4, 0], limits[2] = V, -1, -1
    out = run("block", guesser("draft_model"), prompts=prompts, limit=limits)
    whole = run("block", guesser("draft_model"), limit=9)
    for row in range(ROWS):
        assert out.rows[row] == ([] if row in (1, 2, 4) else whole.rows[row])
        assert (out.reasons[row] == FinishReason.INVALID) == (row in (1, 2, 4))


@pytest.mark.parametrize("values", [{"temperature": np.nan}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}])
def test_impossible_sampling_that_is_traced_ends_its_row_alone(values):
    (name, value), whole = *values.items(), run("block", guesser("draft_model"))
    given = np.broadcast_to(getattr(MIXED, name), ROWS).copy()
    given[2] = value
    out = run("block", guesser("draft_model"), sampling=MIXED._replace(**{name: given}))
    for row in range(ROWS):
        assert out.rows[row] == ([] if row == 2 else whole.rows[row])
    assert out.reasons[2] == FinishReason.INVALID


@partial(quick, static_argnums=(0, 1))
def start(rule, drafter, drafter_params, limit, eos):
    return init(
        TARGET,
        PARAMS,
        drafter,
        drafter_params,
        PROMPTS,
        PROMPT_LENGTHS,
        key=KEYS,
        sampling=SamplingParams(temperature=0.0) if rule == "greedy" else MIXED,
        config=config(rule),
        max_new_tokens=limit,
        eos_tokens=eos,
    )


@partial(quick, static_argnums=(0, 1))
def advance(rule, drafter, drafter_params, state, draft_length):
    return step(TARGET, PARAMS, drafter, drafter_params, state, config=config(rule), draft_length=draft_length)


class Driver:
    """`init` and `step`, compiled once for a rule and a drafter."""

    def __init__(self, rule, drafter, drafter_params, limit=20, eos=()):
        self._static, self._params = (rule, drafter), drafter_params
        eos = np.array([*eos, *[-1] * (8 - len(eos))], np.int32)
        self.state = start(*self._static, drafter_params, np.full(ROWS, limit, np.int32), eos)

    def step(self, draft_length) -> tuple[GenerateState, Round]:
        draft_length = np.broadcast_to(np.asarray(draft_length, np.int32), ROWS)
        self.state, info = advance(*self._static, self._params, self.state, draft_length)
        return self.state, info

    def running(self) -> bool:
        return bool((self.state.finish_reason == FinishReason.RUNNING).any())


@pytest.mark.parametrize("name", ["draft_model", "ngram"])
def test_steps_by_hand_are_generate_and_ended_rows_stay(name):
    whole = run("block", guesser(name), eos=(1,))
    driver = Driver("block", guesser(name).drafter, guesser(name).weak, eos=(1,))
    ended = {}
    while driver.running():
        state, info = driver.step(10)  # beyond K: bounded by it
        for row in range(ROWS):
            kept = [state.tokens[row], state.lengths[row], state.finish_reason[row], state.stats.rounds[row]]
            kept += [state.stats.drafted[row], state.logprobs.raw[row]]
            if row in ended:
                jax.tree.map(np.testing.assert_array_equal, kept, ended[row])
                assert int(info.num_committed[row]) == int(info.num_drafted[row]) == 0
            elif state.finish_reason[row] != FinishReason.RUNNING:
                ended[row] = kept
    out = driver.state.generation(CAPACITY)
    np.testing.assert_array_equal(out.tokens, whole.raw.tokens)
    np.testing.assert_array_equal(out.stats.accepted, whole.raw.stats.accepted)


@pytest.mark.parametrize("rule", ["greedy", "block", "coupled"])
def test_self_draft_is_always_kept_however_the_draft_length_changes(rule):
    """Rounds without guesses leave the draft behind; whatever it missed it must have read when it guesses again."""
    driver = Driver(rule, guesser("draft_model").drafter, PARAMS, limit=31)
    mixed = np.array([0, 1, 2, 3, 0, 3])
    for draft_length in (3, 0, 0, 0, 2, 0, 0, mixed, mixed[::-1].copy(), 1, 0, 2):
        running = np.asarray(driver.state.finish_reason == FinishReason.RUNNING)
        state, info = driver.step(draft_length)
        ended = np.asarray(state.finish_reason != FinishReason.RUNNING)
        np.testing.assert_array_equal(info.num_drafted, np.where(running, draft_length, 0))
        np.testing.assert_array_equal(info.num_accepted[~ended], info.num_drafted[~ended])
        assert not ended.all()


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_draft_length_of_a_round_does_not_change_the_tokens(rule):
    driver = Driver(rule, guesser("draft_model").drafter, WEAK)
    rng = np.random.default_rng(1)
    while driver.running():
        driver.step(rng.integers(0, 4, ROWS))
    np.testing.assert_array_equal(driver.state.generation(CAPACITY).tokens, run(rule).raw.tokens)

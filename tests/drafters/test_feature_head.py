"""The feature head: what it guesses from, and what its cache holds after every kind of round."""

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once
from programs import quick

from specdec_jax import FinishReason, GenerateConfig, SamplingParams, feature_head, generate, init, step
from specdec_jax.testing import history_head, history_model, random_logits

V, K = 16, 3
module = import_module("specdec_jax.drafters.feature_head")  # the package has a function of that name
TARGET, PARAMS = history_model(V), random_logits(0, 97, V)
WEAK = (PARAMS + random_logits(1, 97, V, spread=0.7)).astype(np.float32)
HEAD = feature_head(history_head(V))
PROMPTS = jax.random.randint(jax.random.key(0), (4, 9), 0, V)
LENGTHS = np.array([9, 2, 1, 5])
CONFIG = GenerateConfig(capacity=40, draft_length=K, rule="token", prefill_chunk=4)
FULL = np.full(4, K, np.int32)


@quick
def start(head_params):
    return init(TARGET, PARAMS, HEAD, head_params, PROMPTS, LENGTHS, key=jax.random.key(1), config=CONFIG)


@quick
def advance(head_params, state, draft_length):
    return step(TARGET, PARAMS, HEAD, head_params, state, config=CONFIG, draft_length=draft_length)


@quick
def feed(tokens):
    """All pairs of a text at once: features, and the cache. What stands after the text comes after its pairs."""
    head = history_head(V)
    cache, _ = head.init(1, 48)
    target_cache = TARGET.init_cache(1, 48)
    zero = jnp.zeros(1, jnp.int32)
    _, hidden, _ = TARGET.apply(PARAMS, tokens[None, :-1], target_cache, zero)
    features = head.fuse(WEAK, hidden)
    return features, head.apply(WEAK, features, tokens[None, 1:], cache, zero)[1]


def test_a_head_that_knows_the_target_is_always_right():
    state = start(PARAMS)
    while (state.finish_reason == FinishReason.RUNNING).any():
        state, _ = advance(PARAMS, state, FULL)
    stats = state.stats
    # Only what hangs over the end of a row is lost.
    assert (np.asarray(stats.drafted - stats.accepted) <= K).all()
    # Four tokens a round, but for the first of the row that had no pair, and the last of each.
    assert (np.asarray(stats.rounds) <= np.ceil((40 - LENGTHS) / (K + 1)) + (LENGTHS == 1)).all()


@pytest.mark.parametrize("waiting", at_once([64, K + 2, K], [K]))
def test_its_pairs_are_the_committed_ones_after_every_round(waiting, monkeypatch):
    """Every pair that is held goes on from the one before it (`history_head` would say NaN), whatever was refused.

    Those of rounds without a guess wait, if there is room, until one is to be made.
    """
    monkeypatch.setattr(module, "_WAITING", waiting)
    head = feature_head(history_head(V))
    state = init(TARGET, PARAMS, head, WEAK, PROMPTS, LENGTHS, key=jax.random.key(1), config=CONFIG)
    advance = quick(partial(step, TARGET, PARAMS, head, WEAK, config=CONFIG))
    refused, waited = 0, 0
    for draft_length in (3, 0, [0, 2, 1, 3], 3, 0, 0, 0, 2, 3):
        state, info = advance(state, draft_length=np.broadcast_to(np.array(draft_length, np.int32), 4))
        refused += int((info.num_drafted - info.num_accepted).sum())
        held = state.drafter_state
        np.testing.assert_array_equal(held.pairs, state.lengths - 1)
        for row, (pairs, learned) in enumerate(zip(held.pairs.tolist(), held.learned.tolist(), strict=True)):
            features, whole = feed(state.tokens[row])
            np.testing.assert_array_equal(held.cache[row, 1 : learned + 1], whole[0, 1 : learned + 1])
            np.testing.assert_array_equal(held.feature[row], whole[0, learned])
            np.testing.assert_array_equal(held.waiting[row, : pairs - learned], features[0, learned:pairs])
            waited = max(waited, pairs - learned)
    assert refused > 0
    assert waited == min(waiting, K + 4), "what four rounds in a row added, or there is room for"


def test_a_target_that_gives_out_no_states_is_refused():
    def silent(*args):
        logits, _, cache = TARGET.apply(*args)
        return logits, None, cache

    target = TARGET._replace(apply=silent)
    with pytest.raises(ValueError, match=r"gives out no hidden states.*hidden_layers="):
        generate(
            target,
            PARAMS,
            HEAD,
            PARAMS,
            PROMPTS,
            LENGTHS,
            key=jax.random.key(1),
            sampling=SamplingParams(),
            config=CONFIG,
        )

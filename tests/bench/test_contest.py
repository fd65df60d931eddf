"""The contest: batches of prompts, sums of medians with their spread, and shares of equal tokens."""

import pytest

from specdec_jax import GenerateConfig, ngram
from specdec_jax.bench import contest, count_traces, in_batches, memory, round_cost, speculative
from specdec_jax.bench.contest import _entry
from specdec_jax.testing import markov_model, random_logits

pytestmark = pytest.mark.usefixtures("quick_programs")

V = 5
PARAMS = random_logits(0, V, V, spread=3.0)
CONFIG = GenerateConfig(capacity=24, draft_length=2, prefill_chunk=8)


def always(*tokens: int):
    """A contestant that says the same to every prompt."""
    return lambda prompts, limit: [list(tokens)[:limit] for _ in prompts]


def test_tokens_and_shares_of_equal_tokens():
    entries = contest(
        {
            "first": always(1, 2, 3, 4),
            "same": always(1, 2, 3, 4),
            "differs": always(1, 0, 3, 0),
            "stops": always(1, 2, 3),
        },
        [[[1], [2]], [[3], [1]]],
        max_new_tokens=4,
        repeats=2,
    )
    assert {name: entry.tokens for name, entry in entries.items()} == {
        "first": 16, "same": 16, "differs": 16, "stops": 12
    }  # fmt: skip
    assert {name: entry.equal for name, entry in entries.items()} == {
        "first": 1.0, "same": 1.0, "differs": 0.5, "stops": 0.75
    }  # fmt: skip
    assert all(entry.tokens_per_second == pytest.approx(entry.tokens / entry.seconds) for entry in entries.values())


def test_medians_are_summed_over_batches_and_the_spread_is_of_whole_repeats():
    entry = _entry([[1] * 60], [[1] * 60], [[1.0, 2.0, 9.0], [4.0, 2.0, 3.0]])
    assert entry[:5] == (60, 2.0 + 3.0, 60 / 5, 60 / 12, 60 / 4)


def test_each_prompt_is_in_a_batch_and_the_first_fill_the_last():
    assert in_batches([[1], [2], [3]], 1) == [[[1]], [[2]], [[3]]]
    assert in_batches([[1], [2], [3]], 2) == [[[1], [2]], [[3], [1]]]
    assert in_batches([[1], [2]], 5) == [[[1], [2], [1], [2], [1]]]


@pytest.mark.heavy
def test_speculative_contestants_agree_and_every_prompt_has_one_shape():
    model, traces = count_traces(markov_model(V))
    seen = []
    plain = speculative(model, PARAMS, None, None, config=CONFIG, eos_tokens=())
    drafted = speculative(model, PARAMS, ngram(), None, config=CONFIG, eos_tokens=(), seen=seen.append)
    first = drafted([[1, 2], [4]], 9)
    before = traces()
    assert [len(row) for row in first] == [9, 9]
    assert drafted([[3, 1, 4, 1], [2, 2, 2]], 9)
    assert traces() == before
    assert first == plain([[1, 2], [4]], 9)
    assert [one.prompts for one in seen] == [[[1, 2], [4]], [[3, 1, 4, 1], [2, 2, 2]]]


def test_traces_are_counted():
    model, traces = count_traces(markov_model(V))
    assert traces() == 0
    plain = speculative(model, PARAMS, None, None, config=CONFIG, eos_tokens=())
    plain([[1]], 3)
    assert traces() > 0


def test_round_cost_is_a_ratio_of_what_it_measured():
    model = markov_model(V)
    cost = round_cost(model, PARAMS, ngram(), None, [1, 2], config=CONFIG, max_new_tokens=8, repeats=1)
    assert cost.verify_seconds > 0
    assert cost.draft_seconds == 0
    assert cost.ratio == pytest.approx(cost.round_seconds / cost.verify_seconds)


def test_memory_counts_the_cache():
    used = memory(markov_model(V), PARAMS, None, None, batch=2, prompt_slots=8, config=CONFIG)
    assert used.cache_bytes == 2 * 24 * 4
    assert used.argument_bytes >= PARAMS.nbytes
    assert used.temporary_bytes > 0
    assert used.peak_bytes > used.argument_bytes + used.temporary_bytes  # and what is returned


@pytest.mark.heavy
def test_verify_passes_of_several_widths_share_one_cache():
    """A conditional would copy it; see `round.step`."""
    wide, both = (
        memory(
            markov_model(V),
            PARAMS,
            ngram(),
            None,
            batch=4,
            prompt_slots=8,
            config=GenerateConfig(capacity=8192, draft_length=2, prefill_chunk=8, verify_widths=widths),
        )
        for widths in ((3,), (1, 3))
    )
    assert both.cache_copies == wide.cache_copies

"""What holds for every rule with every drafter."""

import jax
import numpy as np
import pytest
from toys import COLD, PROMPT_LENGTHS, PROMPTS, ROWS, SLOTS, K, V, cut, each_pair, greedy_walk, guesser, one_row, run

from specdec_jax import FinishReason


@each_pair
def test_row_alone_is_the_row_in_a_batch(rule, name):
    whole = run(rule, guesser(name)).rows
    for row in range(ROWS):
        assert run(rule, guesser(name), **one_row(row)).rows == [whole[row]]


@each_pair
def test_temperature_zero_is_the_greedy_walk(rule, name):
    """Under every rule."""
    drafter = guesser(name)
    for drafter_params in (drafter.same, drafter.weak):
        out = run(rule, drafter, drafter_params, sampling=COLD)
        assert out.rows == [greedy_walk(row, 20) for row in range(ROWS)]


@each_pair
def test_smaller_limit_gives_a_prefix(rule, name):
    """At every length of a block: 20 tokens are several blocks, and each limit cuts one of them somewhere."""
    whole = run(rule, guesser(name), guesser(name).same)
    for limit in range(12):
        out = run(rule, guesser(name), guesser(name).same, limit=limit)
        assert out.rows == [row[:limit] for row in whole.rows]
        assert out.reasons == [FinishReason.LENGTH] * ROWS


@each_pair
def test_each_row_has_its_own_limit(rule, name):
    whole = run(rule, guesser(name)).rows
    limits = np.array([0, 1, 7, 20, 3, 4])
    assert run(rule, guesser(name), limit=limits).rows == [row[:n] for row, n in zip(whole, limits, strict=True)]


@each_pair
def test_end_token_ends_its_row_wherever_it_lies(rule, name):
    whole = run(rule, guesser(name), guesser(name).same).rows
    for place in range(9):  # the token at each place of row 0's first blocks, and one that comes late or never
        eos = (whole[0][place], V - 1)
        out = run(rule, guesser(name), guesser(name).same, eos=eos)
        for row, tokens in enumerate(whole):
            assert out.rows[row] == cut(tokens, eos)
            ended = out.rows[row][-1] in eos
            assert out.reasons[row] == (FinishReason.END_TOKEN if ended else FinishReason.LENGTH)


@each_pair
def test_padding_does_not_matter(rule, name):
    padding = np.arange(SLOTS)[None, :] >= PROMPT_LENGTHS[:, None]
    noise = np.random.default_rng(9).integers(0, V, PROMPTS.shape)
    for filled in (noise, -1, 10**6):
        prompts = np.where(padding, filled, PROMPTS).astype(np.int32)
        assert run(rule, guesser(name), prompts=prompts).rows == run(rule, guesser(name)).rows


@each_pair
def test_full_row_says_so(rule, name):
    out = run(rule, guesser(name), limit=10**9)
    assert out.reasons == [FinishReason.CAPACITY] * ROWS
    assert [len(row) for row in out.rows] == (40 - PROMPT_LENGTHS).tolist()
    assert [row[:20] for row in out.rows] == run(rule, guesser(name)).rows


@each_pair
def test_statistics_add_up(rule, name):
    for drafter_params in (guesser(name).same, guesser(name).weak):
        for eos in ((), (1, 4)):
            out = run(rule, guesser(name), drafter_params, eos=eos)
            stats, lengths = out.raw.stats, np.asarray(out.raw.lengths)
            # Every round emits its kept guesses and one more token, but for that token in the round that ends a row.
            assert np.isin(stats.accepted + stats.rounds - lengths, [0, 1]).all()
            np.testing.assert_array_equal(stats.drafted_at.sum(1), stats.drafted)
            np.testing.assert_array_equal(stats.accepted_at.sum(1), stats.accepted)
            assert (stats.accepted_at <= stats.drafted_at).all()
            assert (np.diff(stats.accepted_at, axis=1) <= 0).all()
            assert (stats.drafted <= K * stats.rounds).all()
            summary = out.raw.summary()
            assert summary["rounds"] == stats.rounds.sum()
            assert summary["block_efficiency"] == pytest.approx(lengths.sum() / stats.rounds.sum())
            assert summary["acceptance_rate"] == pytest.approx(stats.accepted.sum() / stats.drafted.sum())


@each_pair
def test_same_key_same_tokens_other_key_other_tokens(rule, name):
    out = run(rule, guesser(name))
    assert run(rule, guesser(name)).rows == out.rows
    other = run(rule, guesser(name), keys=jax.random.split(jax.random.key(77), ROWS)).rows
    if rule == "greedy":
        assert other == out.rows
    else:
        assert other[0] != out.rows[0]
        assert other[1] == out.rows[1]  # temperature 0

"""Logits that are no distribution: the target's end their row, the drafter's end the guesses, nothing else changes."""

import numpy as np
import pytest
from marks import at_once
from toys import COLD, ROWS, K, V, each_pair, guesser, run

from specdec_jax import FinishReason, draft_model, early_exit, feature_head
from specdec_jax.testing import markov_head, markov_model, random_logits

MARKOV = markov_model(V)
# Nothing leads to token 0 but a prompt; after token 0 the model is broken.
CLEAN = random_logits(11, V, V)
CLEAN[:, 0] = -np.inf
TABLES = {
    "nan": np.where(np.arange(V)[:, None] == 0, np.nan, CLEAN),
    "one nan": np.where((np.arange(V)[:, None] == 0) & (np.arange(V) == 7), np.nan, CLEAN),
    "plus infinity": np.where((np.arange(V)[:, None] == 0) & (np.arange(V) == 7), np.inf, CLEAN),
    "all forbidden": np.where(np.arange(V)[:, None] == 0, -np.inf, CLEAN),
}
PROMPTS = np.array([[3, 1, 0], [1, 2, 0], [4, 1, 5], [2, 0, 9], [0, 6, 1], [1, 1, 1]], np.int32)
LENGTHS = np.array([3, 2, 3, 2, 3, 1], np.int32)  # rows 0 and 3 end in token 0
ON_MARKOV = {"target": MARKOV, "prompts": PROMPTS, "lengths": LENGTHS}
MARKOV_DRAFT = guesser("draft_model")._replace(drafter=draft_model(MARKOV), same=CLEAN, weak=random_logits(12, V, V))


MARKOV_EXIT = MARKOV_DRAFT._replace(drafter=early_exit(MARKOV))
MARKOV_HEAD = MARKOV_DRAFT._replace(drafter=feature_head(markov_head(V)))


def drafter_for(name):
    return {"draft_model": MARKOV_DRAFT, "early_exit": MARKOV_EXIT, "feature_head": MARKOV_HEAD}.get(name) or guesser(
        name
    )


@each_pair
def test_broken_row_ends_and_leaves_the_others_alone(rule, name):
    clean = run(rule, drafter_for(name), params=CLEAN, **ON_MARKOV)
    for kind, table in TABLES.items():
        out = run(rule, drafter_for(name), params=table, **ON_MARKOV)
        for row in range(ROWS):
            broken = row in (0, 3)
            assert out.rows[row] == ([] if broken else clean.rows[row]), kind
            assert out.reasons[row] == (FinishReason.NAN if broken else FinishReason.LENGTH), kind


@each_pair
def test_what_was_drawn_before_the_break_stands(rule, name):
    """The walk of temperature 0 is broken after each number of tokens in turn, at each place of a block."""
    for same in (True, False):
        for place in range(2 * K + 3):
            table, walk = broken_after(place)
            drafter = drafter_for(name)
            out = run(
                rule,
                drafter,
                table if same and name != "ngram" else drafter.weak,
                params=table,
                sampling=COLD,
                **ON_MARKOV,
            )
            assert out.rows[2] == walk[:place]
            assert out.reasons[2] == FinishReason.NAN


def broken_after(place):
    """A chain 5 -> 6 -> 7 -> .. whose logits are NaN after ``place`` tokens, and the walk along it."""
    table = np.full((V, V), -5, np.float32)
    table[np.arange(V), (np.arange(V) + 1) % V] = 5
    walk = [(6 + i) % V for i in range(V)]
    table[([5, *walk])[place]] = np.nan
    return table, walk


@pytest.mark.parametrize("rule", at_once(["greedy", "coupled"], ["coupled"]))
@pytest.mark.parametrize("name", ["draft_model", "early_exit", "feature_head"])
def test_broken_drafter_changes_nothing(rule, name):
    plain = run(rule, params=CLEAN, **ON_MARKOV).rows
    drafter = drafter_for(name)
    for broken in (np.nan, np.inf, -np.inf):
        some = np.where(np.arange(V)[:, None] % 3 == 1, broken, drafter.same).astype(np.float32)
        out = run(rule, drafter, some, params=CLEAN, **ON_MARKOV)
        assert out.rows == plain
        assert 0 < out.raw.stats.drafted.sum() < K * out.raw.stats.rounds.sum()
        all_broken = run(rule, drafter, np.full_like(some, broken), params=CLEAN, **ON_MARKOV)
        assert all_broken.rows == plain
        assert all_broken.raw.stats.drafted.sum() == 0

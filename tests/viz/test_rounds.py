"""Tables and bars of rounds, against numbers that were put in."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.patches import StepPatch

from specdec_jax.state import Stats
from specdec_jax.viz import rounds
from specdec_jax.viz.duel import Duel, Side

DUEL = Duel(
    tokens=np.array([[5, 6], [7, 8]]),
    length=np.array([2, 2]),
    draws=np.array([[0.1, 0.9], [0.3, 0.5]]),
    token=Side(np.array([[0.2, 0.8], [0.4, 0.45]]), np.array([1, 1]), np.array([[0.2, 0.16], [0.4, 0.18]])),
    block=Side(np.array([[0.25, 0.95], [0.35, 0.6]]), np.array([2, 2]), np.array([[0.3, 0.26], [0.5, 0.28]])),
)


def heights(picture):
    """Of the bars, kind by kind."""
    (axes,) = picture.figure.axes
    return [[bar.get_height() for bar in container] for container in axes.containers]


def test_both_halves_have_their_own_times():
    picture = rounds.time_line([0.01, 0.02, 0.06], [0.03, 0.05, 0.04])
    assert picture.rows == (("drafting", "0.090", "20.00", "60.00"), ("verifying", "0.120", "40.00", "50.00"))
    (axes,) = picture.figure.axes
    draft, verify = (patch.get_data() for patch in axes.patches if isinstance(patch, StepPatch))
    np.testing.assert_allclose(draft[0], [10, 20, 60])
    for part, wanted in zip(verify, ([40, 70, 100], [0, 0.04, 0.11, 0.21], [10, 20, 60]), strict=True):
        np.testing.assert_allclose(part, wanted)  # tops, edges and baseline


def test_the_same_draws_under_each_rule():
    picture = rounds.same_draws(DUEL, 0, ["a", "b"])
    assert picture.rows == (
        ("1", "a", "0.100", "0.200 (accepts)", "0.250 (accepts)"),
        ("2", "b", "0.900", "0.800 (refuses)", "0.950 (accepts)"),
    )
    assert picture.description.startswith("The token rule keeps 1 and the block rule 2 of 2 guesses.")
    bars = heights(picture)
    assert bars == [pytest.approx([0.2, 0.8]), pytest.approx([0.25, 0.95])]


def test_the_means_of_each_rule():
    picture = rounds.at_least(DUEL)
    assert picture.rows == (("1", "0.300", "0.400"), ("2", "0.170", "0.270"))
    assert heights(picture) == [pytest.approx([0.3, 0.17]), pytest.approx([0.4, 0.27])]
    assert "token rule, mean 0.470; block rule, mean 0.670" in picture.description


def test_acceptance_by_place():
    rounds_, drafted, accepted = (jnp.array([n]) for n in (5, 6, 4))
    counts = Stats(rounds_, drafted, accepted, jnp.array([[4, 2, 0]]), jnp.array([[3, 1, 0]]))
    picture = rounds.acceptance(counts)
    assert picture.rows == (("1", "4", "3", "0.750"), ("2", "2", "1", "0.500"))
    assert heights(picture) == [[0.75, 0.5]]


def test_tokens_a_round():
    picture = rounds.tokens_a_round([1, 3, 3], K=2)
    assert picture.rows == (("1", "1"), ("2", "0"), ("3", "2"))
    assert heights(picture) == [[1, 0, 2]]
    assert picture.description.startswith("2.33 on average.")

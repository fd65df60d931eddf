"""Tables and bars of one token's pictures, against numbers worked out from p and q without the library."""

import numpy as np
import pytest
from matplotlib.container import BarContainer

from specdec_jax.viz import bars
from specdec_jax.viz.story import tell

P, Q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.5, 0.15, 0.25])  # no two of their parts are alike
KEPT, OVER, UNDER = np.minimum(P, Q), np.maximum(0, Q - P), np.maximum(0, P - Q)
REDRAW = UNDER / UNDER.sum()
DRAWN = UNDER.sum() * REDRAW
STORY = tell(P, Q, "abcd".__getitem__)

TABLES = {
    bars.distributions: (P, Q),
    bars.areas: (OVER, UNDER),
    bars.redrawn: (UNDER, REDRAW),
    bars.stacked: (KEPT, DRAWN, P, P),
}
BARS = {
    bars.distributions: [(0, P), (0, Q)],
    bars.areas: [(0, OVER), (0, -UNDER)],
    bars.accepted: [(0, KEPT), (KEPT, OVER)],
    bars.redrawn: [(0, UNDER), (0, REDRAW)],
    bars.stacked: [(0, KEPT), (KEPT, DRAWN)],
    lambda story: bars.edge_case("edge", "", story): [(0, KEPT), (KEPT, OVER), (KEPT, UNDER)],
}
"""Of each kind of bar where they begin and how long they are."""


@pytest.mark.parametrize(("draw", "columns"), TABLES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_the_tables_are_those_of_numpy(draw, columns):
    wanted = [(word, *(f"{value:.3f}" for value in values)) for word, *values in zip("abcd", *columns, strict=True)]
    assert list(draw(STORY).rows) == wanted


def test_the_table_of_what_is_accepted():
    chances = ["100 %", "60.0 %", "100 %", "40.0 %"]
    wanted = [
        (word, f"{q:.3f}", f"{kept:.3f}", chance)
        for word, q, kept, chance in zip("abcd", Q, KEPT, chances, strict=True)
    ]
    assert list(bars.accepted(STORY).rows) == wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (1e-9, "under 0.1 %"),
        (0.004, "0.4 %"),
        (2 / 3, "66.7 %"),
        (0.996, "99.6 %"),
        (0.99999, "over 99.9 %"),
        (1.0, "100 %"),
    ],
)
def test_only_what_is_certain_is_called_so(value, text):
    assert bars.percent(value) == text
    story = tell(np.array([value / 2, 1 - value / 2]), np.array([0.5, 0.5]), "ab".__getitem__)
    assert text in {row[3] for row in bars.accepted(story).rows}


def test_the_table_of_a_case_at_the_edge():
    wanted = [
        (word, *(f"{value:.3f}" for value in values)) for word, *values in zip("abcd", P, Q, KEPT, REDRAW, strict=True)
    ]
    assert list(bars.edge_case("edge", "", STORY).rows) == wanted


@pytest.mark.parametrize(("draw", "kinds"), BARS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_the_bars_are_as_long_as_they_should_be(draw, kinds):
    (axes,) = draw(STORY).figure.axes
    drawn = [container for container in axes.containers if isinstance(container, BarContainer)]
    for container, (begin, length) in zip(drawn, kinds, strict=True):
        np.testing.assert_allclose([bar.get_x() for bar in container], np.broadcast_to(begin, 4), atol=1e-6)
        np.testing.assert_allclose([bar.get_width() for bar in container], length, atol=1e-6)

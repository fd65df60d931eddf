"""The picture of what is gained at each draft length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .picture import DRAFT, INK, KEPT, MUTED, REDRAW, TARGET, WIDTH, Picture, style

_HEIGHT = 4.2
_COLOURS = (TARGET, DRAFT, KEPT, REDRAW, INK)
_LINES = ("-", "--", "-.", ":")


class Curve(NamedTuple):
    """A line of each panel, over draft lengths."""

    label: str
    draft_lengths: Sequence[int]
    tokens: Sequence[float]
    """Of a round."""
    speedups: Sequence[float]
    """NaN where it is not known."""


def by_draft_length(curves: Sequence[Curve], *, points: Sequence[Curve] = ()) -> Picture:
    """Tokens of a round, and below them the speedup with its best; ``points`` are drawn as dots, unconnected."""
    with style():
        figure = Figure(figsize=(WIDTH, _HEIGHT), layout="constrained")
        above, below = figure.subplots(2, sharex=True)
        for number, curve in enumerate(curves):
            _line(above, number, curve, curve.tokens)
            _line(below, number, curve, curve.speedups, label=curve.label)
            best = int(np.argmax(curve.speedups))
            below.plot(curve.draft_lengths[best], curve.speedups[best], "o", color=_colour(number), markersize=5)
        for number, curve in enumerate(points, len(curves)):
            for axes, values in ((above, curve.tokens), (below, curve.speedups)):
                label = curve.label if axes is below else None
                axes.plot(curve.draft_lengths, values, "D", color=_colour(number), markersize=4.5, label=label)
        below.axhline(1, color=MUTED, linewidth=0.8)
        above.set_ylabel("tokens of a round")
        below.set_ylabel("speedup")
        below.set_xlabel("most guesses in a round, K")
        for axes in (above, below):
            axes.grid(axis="y")
            axes.tick_params(labelsize=9)
            axes.set_ylim(0, 1.08 * axes.dataLim.ymax)
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside upper left", ncols=3, fontsize=9, handlelength=2, columnspacing=1.2)
    everything = [*curves, *points]
    return Picture(
        name="draft-lengths",
        title="Tokens of a round and speedup by draft length",
        description=" ".join(map(_sentence, everything)),
        header=("curve", "K", "tokens of a round", "speedup"),
        rows=tuple(
            (curve.label, str(K), f"{tokens:.3f}", "?" if np.isnan(speedup) else f"{speedup:.3f}")
            for curve in everything
            for K, tokens, speedup in zip(curve.draft_lengths, curve.tokens, curve.speedups, strict=True)
        ),
        figure=figure,
    )


def _line(axes: Axes, number: int, curve: Curve, values: Sequence[float], label: str | None = None) -> None:
    kind = _LINES[number % len(_LINES)]
    axes.plot(curve.draft_lengths, values, kind, color=_colour(number), linewidth=1.6, label=label)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _sentence(curve: Curve) -> str:
    if np.isnan(curve.speedups).all():
        return f"{curve.label}: no speedup is known."
    best = int(np.nanargmax(curve.speedups))
    return (
        f"{curve.label}: the highest speedup is {curve.speedups[best]:.2f}, at K = {curve.draft_lengths[best]} with "
        f"{curve.tokens[best]:.2f} tokens of a round."
    )

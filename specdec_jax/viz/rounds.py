"""The pictures of blocks of guesses: two rules on the same draws, and the rounds of a generation."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..state import Stats
from .bars import number
from .duel import Duel
from .labels import drawable, mark, readable
from .picture import DRAFT, INK, KEPT, MUTED, PAPER, TARGET, WIDTH, Picture, style

_HEIGHT = 2.7
_MOST = 9  # columns of a guess below its bars


def same_draws(duel: Duel, row: int, labels: Sequence[str]) -> Picture:
    """One round: each guess's draw, and below which value either rule accepts it. ``labels``: of the guesses made."""
    K = len(labels)
    place = np.arange(K)
    sides = (duel.draws, duel.token.thresholds, duel.block.thresholds)
    draws, singly, jointly = (np.asarray(values[row, :K], float) for values in sides)
    kept = (int(duel.token.kept[row]), int(duel.block.kept[row]))
    with style():
        figure, axes = _axes()
        axes.bar(
            place - 0.2, singly, 0.36, color=PAPER, edgecolor=MUTED, hatch="////", label=f"token rule, keeps {kept[0]}"
        )
        axes.bar(place + 0.2, jointly, 0.36, color=KEPT, label=f"block rule, keeps {kept[1]}")
        axes.hlines(draws, place - 0.45, place + 0.45, color=INK, linewidth=1.6, label="draw")
        axes.set_xticks(place, [f"{i + 1}\n{drawable(label, _MOST)}" for i, label in enumerate(labels)])
        mark(axes.get_xticklabels())
        axes.tick_params(axis="x", labelcolor=INK, length=0)
        axes.set_ylim(0, 1.04)
        _legend(figure)
    rows = tuple(
        (
            str(i + 1),
            label,
            number(draws[i]),
            f"{number(singly[i])} ({_verdict(draws[i], singly[i])})",
            f"{number(jointly[i])} ({_verdict(draws[i], jointly[i])})",
        )
        for i, label in enumerate(labels)
    )
    return Picture(
        name="same-draws",
        title="The same draws under two rules",
        description=f"The token rule keeps {kept[0]} and the block rule {kept[1]} of {K} guesses. "
        + " ".join(f"Guess {r[0]}, {r[1]}: draw {r[2]}; token rule {r[3]}; block rule {r[4]}." for r in rows),
        header=("place", "guess", "draw", "token rule accepts below", "block rule accepts below"),
        rows=rows,
        figure=figure,
        labels=tuple(readable(label, _MOST) for label in labels),
    )


def at_least(duel: Duel) -> Picture:
    """How likely the first i guesses are kept, on average over the rounds' guesses."""
    singly, jointly = (side.at_least.mean(axis=0, dtype=float) for side in (duel.token, duel.block))
    means = [f"{name} rule, mean {chances.sum():.3f}" for name, chances in (("token", singly), ("block", jointly))]
    place = np.arange(1, len(singly) + 1)
    with style():
        figure, axes = _axes()
        token = axes.bar(place - 0.2, singly, 0.36, color=PAPER, edgecolor=MUTED, hatch="////", label=means[0])
        block = axes.bar(place + 0.2, jointly, 0.36, color=KEPT, label=means[1])
        for bars in (token, block):
            axes.bar_label(bars, fmt=number, fontsize=8, color=MUTED, padding=2)
        axes.set_xticks(place)
        axes.set_xlabel("guesses kept, at least")
        axes.set_ylim(0, 1.04)
        _legend(figure)
    rows = tuple((str(i), number(a), number(b)) for i, a, b in zip(place, singly, jointly, strict=True))
    return Picture(
        name="at-least",
        title="What both rules keep on average",
        description=f"Over {len(duel.tokens)} rounds, {means[0]}; {means[1]}. "
        + " ".join(f"At least {r[0]}: token rule {r[1]}, block rule {r[2]}." for r in rows),
        header=("guesses kept, at least", "token rule", "block rule"),
        rows=rows,
        figure=figure,
    )


def acceptance(stats: Stats) -> Picture:
    """``accepted_at``: how often the guess at each place of a round was kept, of the places at which there was one."""
    drafted, kept = (np.asarray(counts).sum(axis=0) for counts in (stats.drafted_at, stats.accepted_at))
    (used,) = np.nonzero(drafted)
    place, drafted, kept = used + 1, drafted[used], kept[used]
    rates = kept / drafted
    with style():
        figure, axes = _axes()
        bars = axes.bar(place, rates, 0.62, color=KEPT)
        axes.bar_label(bars, [f"{rate:.2f}" for rate in rates], fontsize=8.5, color=MUTED)
        axes.set_xticks(place)
        axes.set_xlabel("place of the guess in its round")
        axes.set_ylim(0, 1.08)
    rows = tuple((str(i), str(d), str(k), number(r)) for i, d, k, r in zip(place, drafted, kept, rates, strict=True))
    return Picture(
        name="acceptance",
        title="Acceptance by place",
        description=" ".join(f"Place {r[0]}: {r[2]} of {r[1]} kept." for r in rows),
        header=("place", "drafted", "kept", "accepted_at"),
        rows=rows,
        figure=figure,
    )


def tokens_a_round(committed: Sequence[int], K: int) -> Picture:
    """How many rounds gave how many tokens."""
    mean = sum(committed) / len(committed)
    counts = np.bincount(np.asarray(committed, int), minlength=K + 2)[1:]
    place = np.arange(1, len(counts) + 1)
    with style():
        figure, axes = _axes()
        axes.bar_label(axes.bar(place, counts, 0.62, color=TARGET), fontsize=8.5, color=MUTED)
        axes.axvline(mean, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        axes.annotate(
            f"mean {mean:.2f}",
            (mean, 1),
            (4, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=9,
        )
        axes.set_xticks(place)
        axes.set_xlabel("tokens of the round")
        axes.margins(y=0.15)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return Picture(
        name="tokens-a-round",
        title="Tokens per round",
        description=f"{mean:.2f} on average. "
        + " ".join(f"{n} rounds gave {i}." for i, n in zip(place, counts, strict=True)),
        header=("tokens", "rounds"),
        rows=tuple((str(i), str(n)) for i, n in zip(place, counts, strict=True)),
        figure=figure,
    )


def time_line(draft_seconds: Sequence[float], verify_seconds: Sequence[float]) -> Picture:
    """What each round's two halves took, along the time that all of them took together."""
    draft, verify = np.asarray(draft_seconds), np.asarray(verify_seconds)
    ends = np.concatenate([[0], np.cumsum(draft + verify)])
    with style():
        figure, axes = _axes()
        axes.stairs(1e3 * draft, ends, fill=True, color=DRAFT, label=f"drafting, {draft.sum():.2f} s")
        axes.stairs(
            1e3 * (draft + verify),
            ends,
            baseline=1e3 * draft,
            fill=True,
            color=TARGET,
            label=f"verifying, {verify.sum():.2f} s",
        )
        axes.set_xlim(0, ends[-1])
        axes.set_ylim(0)
        axes.set_xlabel("seconds, both halves of all rounds")
        axes.set_ylabel("ms a round")
        _legend(figure)
    parts = (("drafting", draft), ("verifying", verify))
    rows = tuple((name, f"{x.sum():.3f}", *(f"{1e3 * v:.2f}" for v in (np.median(x), x.max()))) for name, x in parts)
    return Picture(
        name="time-line",
        title="Time line",
        description=" ".join(f"{r[0].capitalize()}: {r[1]} s in all, {r[2]} ms a round (median)." for r in rows),
        header=("half of a round", "seconds in all", "median ms", "longest ms"),
        rows=rows,
        figure=figure,
    )


def _verdict(draw: float, threshold: float) -> str:
    return "accepts" if draw < threshold else "refuses"


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    axes.grid(axis="y")
    axes.tick_params(labelsize=9)
    return figure, axes


def _legend(figure: Figure) -> None:
    figure.legend(loc="outside upper left", ncols=3, fontsize=9, handlelength=1.4, columnspacing=1.2)

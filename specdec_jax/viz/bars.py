"""The pictures of one token's story: horizontal bars, one line a word."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .labels import drawable, mark, readable
from .picture import DRAFT, INK, KEPT, MUTED, PAPER, REDRAW, TARGET, WIDTH, Picture, style
from .story import Story, Word

_LINE = 0.36  # inches of a word
_HEAD = 0.75  # inches of legend and axis
_SEEN = 0.0005  # what is less is written as no number


def number(value: float) -> str:
    """A probability as pages and pictures write it."""
    return f"{value:.3f}"


def percent(value: float) -> str:
    """A probability to a tenth of a percent; 0 and 100 % are exactly these."""
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    text = f"{100 * value:.1f}"
    return {"0.0": "under 0.1 %", "100.0": "over 99.9 %"}.get(text, f"{text} %")


def distributions(story: Story) -> Picture:
    """p and q beside each other."""

    def draw(axes: Axes) -> None:
        _bars(axes, [word.p for word in story.words], TARGET, "target p", up=0.2, height=0.36, written=True)
        _bars(axes, [word.q for word in story.words], DRAFT, "draft q", up=-0.2, height=0.36, written=True)

    return Picture(
        name="distributions",
        title="Target and draft",
        description=_sentence(story, lambda word: f"p {number(word.p)}, q {number(word.q)}"),
        header=("word", "target p", "draft q"),
        rows=_rows(story, lambda word: (word.p, word.q)),
        figure=_figure(story.words, draw),
        labels=_labels(story),
    )


def areas(story: Story) -> Picture:
    """Where the draft has too much, to the right, and where too little, to the left."""

    def draw(axes: Axes) -> None:
        over, under = [word.over for word in story.words], [-word.under for word in story.words]
        _bars(axes, over, DRAFT, f"too much: {story.over:.4f} in all", hatch="////", written=True)
        _bars(axes, under, TARGET, f"too little: {story.under:.4f} in all", hatch="\\\\\\\\", written=True)
        axes.axvline(0, color=INK, linewidth=0.9)
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
        axes.margins(x=0.18)

    return Picture(
        name="areas",
        title="Overshoot and undershoot",
        description=f"In all {story.over:.4f} too much and {story.under:.4f} too little. "
        + _sentence(story, lambda word: f"{number(word.over)} too much, {number(word.under)} too little"),
        header=("word", "overshoot max(0, q - p)", "undershoot max(0, p - q)"),
        rows=_rows(story, lambda word: (word.over, word.under)),
        figure=_figure(story.words, draw),
        labels=_labels(story),
    )


def accepted(story: Story) -> Picture:
    """The part of q that is kept, and how likely each word is to pass."""

    def draw(axes: Axes) -> None:
        kept = [word.kept for word in story.words]
        _bars(axes, kept, KEPT, f"accepted min(p, q): {story.alpha:.4f} in all")
        over = [word.over for word in story.words]
        _bars(axes, over, DRAFT, "refused", left=kept, hatch="////")
        for line, word in enumerate(story.words):
            axes.annotate(_chance(word), (word.q, line), (4, 0), textcoords="offset points", va="center", fontsize=9)
        axes.margins(x=0.18)

    return Picture(
        name="accepted",
        title="What is accepted",
        description=f"Accepted with probability {story.alpha:.4f} in all. "
        + _sentence(story, lambda word: f"{number(word.kept)} of {number(word.q)}, {_chance(word)}"),
        header=("word", "draft q", "accepted min(p, q)", "accept probability min(1, p/q)"),
        rows=tuple((w.label, number(w.q), number(w.kept), _chance(w)) for w in story.words),
        figure=_figure(story.words, draw),
        labels=_labels(story),
    )


def redrawn(story: Story) -> Picture:
    """What is missing, and the same scaled to a distribution, from which the token after a refusal is drawn."""

    def draw(axes: Axes) -> None:
        missing = [word.under for word in story.words]
        _bars(axes, missing, TARGET, "residual max(0, p - q)", up=0.2, height=0.36, hatch="\\\\\\\\", written=True)
        redraw = [word.redraw for word in story.words]
        _bars(axes, redraw, REDRAW, "scaled to sum to 1", up=-0.2, height=0.36, written=True)

    return Picture(
        name="residual",
        title="What is drawn after a refusal",
        description=_sentence(story, lambda w: f"missing {number(w.under)}, drawn with {number(w.redraw)}"),
        header=("word", "residual max(0, p - q)", "scaled to sum to 1"),
        rows=_rows(story, lambda word: (word.under, word.redraw)),
        figure=_figure(story.words, draw),
        labels=_labels(story),
    )


def stacked(story: Story) -> Picture:
    """Both ways to come out, end to end, and p as a line to compare with."""
    refused = story.refused

    def draw(axes: Axes) -> None:
        kept = [word.kept for word in story.words]
        _bars(axes, kept, KEPT, "accepted", height=0.5)
        drawn = [refused * word.redraw for word in story.words]
        _bars(axes, drawn, REDRAW, "drawn after a refusal", left=kept, hatch="\\\\\\\\", height=0.5)
        lines = range(len(story.words))
        axes.plot([word.p for word in story.words], lines, "|", color=INK, markersize=17, mew=2, label="target p")
        for line, word in enumerate(story.words):
            axes.annotate(
                number(word.kept + refused * word.redraw),
                (word.p, line),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.margins(x=0.14)

    return Picture(
        name="stacked",
        title="The two parts stack to p",
        description=_sentence(
            story, lambda w: f"{number(w.kept)} and {number(refused * w.redraw)}, together p {number(w.p)}"
        ),
        header=("word", "accepted", "drawn after a refusal", "both", "target p"),
        rows=_rows(story, lambda w: (w.kept, refused * w.redraw, w.kept + refused * w.redraw, w.p)),
        figure=_figure(story.words, draw),
        labels=_labels(story),
    )


def edge_case(name: str, title: str, story: Story) -> Picture:
    """Accepted, refused and missing parts in one bar a word."""

    def draw(axes: Axes) -> None:
        kept = [word.kept for word in story.words]
        _bars(axes, kept, KEPT, f"accepted {story.alpha:.3f}", height=0.5)
        _bars(axes, [w.over for w in story.words], DRAFT, "too much", left=kept, hatch="////", height=0.5)
        _bars(axes, [w.under for w in story.words], TARGET, "too little", left=kept, hatch="\\\\\\\\", height=0.5)

    return Picture(
        name=name,
        title=title,
        description=f"Accepted with probability {story.alpha:.4f}. "
        + _sentence(story, lambda w: f"p {number(w.p)}, q {number(w.q)}, accepted {number(w.kept)}"),
        header=("word", "target p", "draft q", "accepted", "drawn after a refusal with"),
        rows=_rows(story, lambda w: (w.p, w.q, w.kept, w.redraw)),
        figure=_figure(story.words, draw),
        labels=_labels(story),
    )


def _figure(words: Sequence[Word], draw: Callable[[Axes], None]) -> Figure:
    with style():
        figure = Figure(figsize=(WIDTH, _HEAD + _LINE * len(words)), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_yticks(range(len(words)), [drawable(word.label) for word in words])
        mark(axes.get_yticklabels())
        axes.tick_params(axis="y", length=0, labelsize=10.5)
        axes.tick_params(axis="x", labelsize=9)
        axes.invert_yaxis()
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        figure.legend(loc="outside upper left", ncols=3, fontsize=9, handlelength=1.4, columnspacing=1.2)
    return figure


def _bars(
    axes: Axes,
    values: Sequence[float],
    colour: str,
    label: str,
    *,
    up: float = 0.0,
    height: float = 0.6,
    left: Sequence[float] | float = 0.0,
    hatch: str | None = None,
    written: bool = False,
) -> None:
    """Bars of a part; a hatched one is paler, so that its stripes show."""
    bars = axes.barh(
        [line - up for line in range(len(values))],
        values,
        height,
        left,
        color=PAPER if hatch else colour,
        edgecolor=colour,
        linewidth=0.8,
        hatch=hatch,
        label=label,
    )
    if written:
        texts = [number(abs(value)) if abs(value) >= _SEEN else "" for value in values]
        axes.bar_label(bars, texts, padding=3, fontsize=8.5, color=MUTED)


def _chance(word: Word) -> str:
    if word.accept is None:
        return "never drafted"
    return percent(word.accept)


def _rows(story: Story, values: Callable[[Word], Sequence[float]]) -> tuple[tuple[str, ...], ...]:
    return tuple((word.label, *map(number, values(word))) for word in story.words)


def _labels(story: Story) -> tuple[str, ...]:
    return tuple(readable(word.label) for word in story.words)


def _sentence(story: Story, tell: Callable[[Word], str]) -> str:
    return "; ".join(f"{word.label}: {tell(word)}" for word in story.words) + "."

"""The figures of `measure` as a picture: speed by batch size, and acceptance by place in the block."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..viz.picture import DRAFT, INK, KEPT, MUTED, REDRAW, TARGET, WIDTH, style
from .at_batch import ADAPTIVE, PLAIN

_COLOURS = {PLAIN: TARGET, ADAPTIVE: KEPT}
_OTHER_COLOURS = (DRAFT, REDRAW, MUTED, INK)
_MARKERS = "osD^vPX*"


def picture(found: dict[str, Any]) -> Figure:
    """Speeds with their spread over repeats on the left; on the right how often each guess of long blocks was kept."""
    contests = found["batches"]
    with style():
        figure = Figure(figsize=(2 * WIDTH, 3.6), layout="constrained")
        speeds, kept = figure.subplots(1, 2)
        for place, name in enumerate(_names(contests)):
            _speed(speeds, name, place, [one for one in contests if name in one["contestants"]])
        batches = [one["batch"] for one in contests]
        speeds.set(xscale="log", ylim=(0, None), xlabel="batch size", ylabel="tokens a second")
        speeds.set_xticks(batches, [str(batch) for batch in batches])
        speeds.set_xticks([], minor=True)
        for place, one in enumerate(contests):
            drafted = (entry["accepted_at"] for entry in one["contestants"].values() if "accepted_at" in entry)
            shares = max(drafted, key=len)  # the first of them: fixed lengths, which try every place, come first
            marker = _MARKERS[place % len(_MARKERS)]
            kept.plot(range(1, len(shares) + 1), shares, marker=marker, label=f"batch size {one['batch']}")
        kept.set(xlabel="place of the guess", ylabel="share kept", ylim=(0, 1.03))
        kept.xaxis.get_major_locator().set_params(integer=True)
        for axes in (speeds, kept):
            axes.grid()
            axes.legend(fontsize=8)
        figure.suptitle(f"{found['target']}, drafted for by {found['draft']}", fontsize=10)
    return figure


def _names(contests: Sequence[dict[str, Any]]) -> list[str]:
    """Of all contestants, each once."""
    return list(dict.fromkeys(name for one in contests for name in one["contestants"]))


def _speed(axes: Axes, name: str, place: int, contests: Sequence[dict[str, Any]]) -> None:
    entries = [one["contestants"][name] for one in contests]
    middle = [entry["tokens_per_second"] for entry in entries]
    below = [max(entry["tokens_per_second"] - entry["slowest"], 0) for entry in entries]
    above = [max(entry["fastest"] - entry["tokens_per_second"], 0) for entry in entries]
    axes.errorbar(
        [one["batch"] for one in contests],
        middle,
        [below, above],
        color=_COLOURS.get(name, _OTHER_COLOURS[place % len(_OTHER_COLOURS)]),
        marker=_MARKERS[place % len(_MARKERS)],
        capsize=2,
        linewidth=2 if name in _COLOURS else 1,
        label=name,
    )

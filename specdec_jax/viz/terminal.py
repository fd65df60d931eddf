"""A generation in the terminal, coloured as it grows."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from ..trace import Moment
from .trace_page import Mark, marks, row_of

STYLES = {
    "prompt": "dim",
    "kept": "green",
    "refused": "yellow strike",
    "corrected": "bold magenta",
    "bonus": "bold blue underline",
}
_FOOTER = 4  # lines under the text


def watch(
    moments: Iterable[Moment],
    prompt: Sequence[int],
    bytes_of: Callable[[int], bytes],
    console: Console,
    *,
    row: int = 0,
) -> Iterator[Moment]:
    """Give on the rounds as they come, and show a row's text meanwhile: its end live, and all of it when it is done."""
    seen: list[Moment] = []
    with Live(console=console, transient=True, auto_refresh=False) as live:
        for moment in moments:
            seen.append(moment)
            live.update(_screen(seen, marks(row_of(seen, row), prompt, bytes_of), console, row), refresh=True)
            yield moment
    console.print(text(marks(row_of(seen, row), prompt, bytes_of)))
    console.print(legend())


def text(found: Sequence[Mark], *, refused_of: int | None = None) -> Text:
    """The text with its colours; refused tokens of one round only, or of none."""
    whole = Text()
    for mark in found:
        if mark.kind != "refused" or mark.round == refused_of:
            whole.append(mark.text, STYLES[mark.kind])
    return whole


def legend() -> Text:
    """What the colours mean."""
    return Text("  ").join(Text(kind, style) for kind, style in STYLES.items())


def _screen(seen: Sequence[Moment], found: Sequence[Mark], console: Console, row: int) -> Group:
    number = len(row_of(seen, row)) - 1
    lines = text(found, refused_of=number).wrap(console, console.width)
    shown = lines[-max(1, console.height - _FOOTER) :]
    stats = seen[-1].stats
    drafted, accepted, count = (int(values[row]) for values in (stats.drafted, stats.accepted, stats.rounds))
    emitted = sum(len(record.tokens) for record in row_of(seen, row))
    draft, verify = (1e3 * seconds for seconds in (seen[-1].draft_seconds, seen[-1].verify_seconds))
    line = (
        f"round {count}  accepted {accepted} of {drafted}  block_efficiency {emitted / count:.2f}  "
        f"drafting {draft:.1f} ms  verifying {verify:.1f} ms"
    )
    return Group(*shown, Rule(style="dim"), Text(line, no_wrap=True, overflow="ellipsis"), legend())

"""A generation in the terminal, coloured as it grows."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from ..trace import Moment
from .glyphs import Speller
from .trace_page import BytesOf, Mark, prompt_marks, round_marks

__all__ = ["watch"]

STYLES = {
    "prompt": "dim",
    "kept": "green",
    "refused": "yellow strike",
    "past the end": "yellow",
    "corrected": "bold magenta",
    "bonus": "bold blue underline",
    "plain": "cyan",
}
_FOOTER = 4  # lines under the text
_TAIL = 500  # tokens that fill any screen


def watch(
    moments: Iterable[Moment], prompt: Sequence[int], bytes_of: BytesOf, console: Console, *, row: int = 0
) -> Iterator[Moment]:
    """Give on the rounds as they come, and show a row's text meanwhile: its end live, and all of it when it is done."""
    speller = Speller()
    marks = prompt_marks(prompt, speller, bytes_of)
    number = emitted = 0
    with Live(console=console, transient=True, auto_refresh=False) as live:
        for moment in moments:
            record = moment.rows[row]
            if record is not None:
                marks += round_marks(number, record, speller, bytes_of)
                emitted += len(record.tokens)
                live.update(_screen(marks, _line(moment, emitted, row), console), refresh=True)
                number += 1
            yield moment
    console.print(text(marks))
    console.print(legend())


def text(marks: Sequence[Mark], *, vain_of: int | None = None) -> Text:
    """The text with its colours; what was guessed in vain of one round only, or of none."""
    whole = Text()
    for mark in marks:
        if not mark.in_vain or mark.round == vain_of:
            whole.append(mark.text, STYLES[mark.kind])
    return whole


def legend() -> Text:
    """What the colours mean."""
    return Text("  ").join(Text(kind, style) for kind, style in STYLES.items())


def _screen(marks: Sequence[Mark], line: str, console: Console) -> Group:
    """The end of the text. It begins at the same token for a while, lest lines break anew with every round."""
    tail = marks[max(0, len(marks) // _TAIL - 1) * _TAIL :]
    lines = text(tail, vain_of=marks[-1].round).wrap(console, console.width)
    shown = lines[-max(1, console.height - _FOOTER) :]
    return Group(*shown, Rule(style="dim"), Text(line, no_wrap=True, overflow="ellipsis"), legend())


def _line(moment: Moment, emitted: int, row: int) -> str:
    drafted, accepted, count = (
        int(of[row]) for of in (moment.stats.drafted, moment.stats.accepted, moment.stats.rounds)
    )
    draft, verify = (1e3 * seconds for seconds in (moment.draft_seconds, moment.verify_seconds))
    return (
        f"round {count}  accepted {accepted} of {drafted}  block_efficiency {emitted / count:.2f}  "
        f"drafting {draft:.1f} ms  verifying {verify:.1f} ms"
    )

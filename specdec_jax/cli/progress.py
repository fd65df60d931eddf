"""How far a command is, on standard error."""

import contextlib
import time
from collections.abc import Iterator

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from . import consoles

_EVERY = 30.0  # seconds between two lines where there is no bar


class Bar:
    """A bar that is told what goes on; where standard error is no terminal a line now and then."""

    def __init__(self, progress: Progress, total: int):
        self._progress, self._total = progress, total
        self._task = progress.add_task("starting", total=total)
        self._told = time.monotonic()

    def compiling(self, slots: int) -> None:
        """Programs are being built."""
        self._progress.update(self._task, description=f"compiling for prompts of {slots} tokens")

    def close(self) -> None:
        """Take the bar away; nothing is shown from now on."""
        self._progress.stop()

    def answered(self, done: int) -> None:
        """So many of all prompts are done."""
        self._progress.update(self._task, completed=done, description="answering")
        console = self._progress.console
        if not console.is_terminal and time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            console.print(f"{done} of {self._total} prompts are answered", markup=False)


@contextlib.contextmanager
def bar(total: int) -> Iterator[Bar]:
    """A bar where standard error is a terminal, and else lines."""
    console = consoles.progress()
    # Something moves while a single answer is being written, too.
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    ) as progress:
        yield Bar(progress, total)

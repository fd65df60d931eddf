"""Consoles that write text as it is: a model's own words, prompts and paths are no markup and no names of emoji."""

import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

_CONTROL = {code: chr(0x2400 + code) for code in range(0x20) if code not in b"\n\t"} | {0x7F: "\u2421"}
_CONTROL |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}


def console(file: Any = None) -> Console:
    """For tables and sentences, on an open text file, by default standard output."""
    return Console(file=file, highlight=False, emoji=False)


class _Beside(Console):
    """Standard error. If nothing can be written there, the work goes on and nothing more is said."""

    def print(self, *objects: Any, **how: Any) -> None:
        try:
            super().print(*objects, **how)
        except OSError:  # a full disk, or a terminal that has hung up
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())  # for what others say there


def errors(style: str | None = None) -> Console:
    """For what is said beside the output."""
    return _Beside(stderr=True, highlight=False, emoji=False, soft_wrap=True, style=style)


def progress() -> Console:
    """For how far it is, in the same place."""
    return _Beside(stderr=True)


def write_text(text: str, console: Console) -> None:
    """The text to the last character and a line's end. A terminal, which would obey control characters, shows them."""
    console.file.write((text.translate(_CONTROL) if console.is_terminal else text) + "\n")

"""``specdec generate`` for a few prompts: answers in the order of the prompts, for people or as JSON lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

from ..batch import Answer, Finished, Refused, Request
from ..state import FinishReason
from . import UserError, consoles, output
from .drafting import Drafting
from .engine import generator
from .progress import bar
from .prompts import Fault, Prompt, distinct, from_arguments, from_file
from .requests import Reader

if TYPE_CHECKING:
    from .generate import Options


def prompts_of(options: Options) -> list[Prompt | Fault]:
    """The prompts; UserError where there are none, or there is no place for the answers."""
    if options.output is not None:
        _check_new(Path(options.output))
    file = options.prompt_file
    return list(distinct(from_arguments(options.prompts) if file is None else from_file(file)))


def _check_new(path: Path) -> None:
    if path.is_file():
        raise UserError(f"{path} exists, and answers would take its place; expected a new file, so name another")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UserError(f"cannot write {path}; expected a file in a folder that exists")


def answer(options: Options, chosen: Drafting, prompts: Sequence[Prompt | Fault], read: Reader, errors: Console) -> int:
    """Answer the prompts; returns the exit status."""
    asked = [read(index, prompt) for index, prompt in enumerate(prompts)]
    refused = [one for one in asked if isinstance(one, Refused)]
    for one in refused:
        errors.print(f"{one.source.where}: {one.why}", markup=False)
    some = len(refused) < len(asked)
    broken = _answer(options, chosen, asked, errors) if some else 0
    if refused or broken:
        errors.print(f"{len(refused) + broken} of {len(prompts)} prompts could not be answered", markup=False)
    return 0 if not refused and not broken else 1 if some else 2


def _answer(options: Options, chosen: Drafting, asked: Sequence[Request | Refused], errors: Console) -> int:
    """Answer what can be; returns how many answers were broken off, for broken logits or impossible values."""
    tally, tokenizer, broken = output.Tally(), chosen.target.tokenizer, 0
    good = [one for one in asked if isinstance(one, Request)]
    with _open(options.output) as file, bar(len(good)) as progress:
        console = consoles.console(file)
        ask = generator(
            chosen,
            options.config,
            batch=min(options.batch, len(good)),
            seed=options.seed,
            controller=options.control(),
            compiling=progress.compiling,
        )

        def stretches() -> Iterator[Finished]:
            done = 0
            for stretch in ask.stretches(good):
                done += len(stretch.answers)
                progress.answered(done)
                tally.add(stretch)
                yield stretch

        for found in _in_order(stretches(), asked):
            broken += isinstance(found, Answer) and found.finish_reason in (FinishReason.NAN, FinishReason.INVALID)
            if file.isatty():
                progress.close()  # or the two would write over each other
            if options.format == "jsonl":
                file.write(output.line(output.record(found, tokenizer, logprobs=options.logprobs)))
                file.flush()
            elif isinstance(found, Answer):
                output.print_answer(found, tokenizer, console)
    errors.print(output.metrics_table({options.draft: tally.metrics()}, title="compiling left out"))
    return broken


def _in_order(stretches: Iterable[Finished], asked: Sequence[Request | Refused]) -> Iterator[Answer | Refused]:
    """Answers in the order of their requests, each as soon as those before it are there, and the refused in between."""
    early: dict[int, Answer] = {}
    due = iter(asked)
    next_one = next(due, None)
    for stretch in stretches:
        early |= {found.request.index: found for found in stretch.answers if isinstance(found, Answer)}
        while isinstance(next_one, Refused) or (next_one is not None and next_one.index in early):
            yield next_one if isinstance(next_one, Refused) else early.pop(next_one.index)
            next_one = next(due, None)


@contextlib.contextmanager
def _open(path: str | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        file = Path(path).open("a", encoding="utf-8", newline="")  # noqa: SIM115, for errors of the body are no errors of opening
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; expected a file in a folder that exists") from error
    with file:
        yield file

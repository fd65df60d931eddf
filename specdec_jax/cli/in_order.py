"""``specdec generate`` for a few prompts: answers in the order of the prompts, for people or as JSON lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

from ..batch import Answer, Finished, Refused, Request
from . import UserError, output
from .drafting import Drafting
from .engine import generator
from .progress import bar
from .prompts import distinct, from_arguments, from_file
from .requests import Reader

if TYPE_CHECKING:
    from .generate import Options


def answer(options: Options, chosen: Drafting, read: Reader, errors: Console) -> int:
    """Answer the prompts; returns the exit status."""
    read_all = from_arguments(options.prompts) if options.prompt_file is None else from_file(options.prompt_file)
    prompts = list(distinct(read_all))
    asked = [read(index, prompt) for index, prompt in enumerate(prompts)]
    good = [one for one in asked if isinstance(one, Request)]
    refused = [one for one in asked if isinstance(one, Refused)]
    for one in refused:
        errors.print(f"{one.source.where}: {one.why}", markup=False)
    if good:
        _answer(options, chosen, good, errors)
    if refused:
        errors.print(f"{len(refused)} of {len(prompts)} prompts could not be answered", markup=False)
    return 0 if not refused else 1 if good else 2


def _answer(options: Options, chosen: Drafting, asked: Sequence[Request], errors: Console) -> None:
    tally, tokenizer = output.Tally(), chosen.target.tokenizer
    with _open(options.output) as file, bar(len(asked), quiet=file.isatty()) as progress:
        console = Console(file=file, highlight=False)
        ask = generator(
            chosen,
            options.config,
            batch=min(options.batch, len(asked)),
            seed=options.seed,
            controller=options.control(),
            compiling=progress.compiling,
        )

        def stretches() -> Iterator[Finished]:
            done = 0
            for stretch in ask.stretches(asked):
                done += len(stretch.answers)
                progress.answered(done)
                tally.add(stretch)
                yield stretch

        for found in _in_order(stretches(), asked):
            if options.format == "jsonl":
                file.write(output.line(output.record(found, tokenizer, logprobs=options.logprobs)))
                file.flush()
            else:
                output.print_answer(found, tokenizer, console)
    errors.print(output.metrics_table({options.draft: tally.metrics()}, title="compiling left out"))


def _in_order(stretches: Iterable[Finished], asked: Sequence[Request]) -> Iterator[Answer]:
    """The answers in the order of their requests, each as soon as those before it are there."""
    early: dict[int, Answer] = {}
    due = iter(asked)
    next_one = next(due, None)
    for stretch in stretches:
        early |= {found.request.index: found for found in stretch.answers if isinstance(found, Answer)}
        while next_one is not None and next_one.index in early:
            yield early.pop(next_one.index)
            next_one = next(due, None)


@contextlib.contextmanager
def _open(path: str | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115, for errors of the body are no errors of opening
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; expected a file in a folder that exists") from error
    with file:
        yield file

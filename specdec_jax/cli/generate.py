"""``specdec generate``: continue prompts with a model, drafted for by another or by n-grams."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import OmitArgPrefixes, Positional, arg

from ..models import load
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError, drafting, output, requests
from .engine import Engine, answer
from .options import CONFIG, SAMPLING, File, check_integers, parse
from .prompts import Fault, from_arguments, from_file


@dataclasses.dataclass(frozen=True)
class Options:
    """Continue each prompt with tokens distributed exactly as the target alone would draw them.

    Prompts stand on the command line, or in a file: JSON lines with one of prompt, messages or token_ids and, if
    wanted, id, category, temperature, top_k, top_p, min_p, max_new_tokens and seed, or text with one prompt a line.
    Answers come out in the order of the prompts.
    """

    prompts: Positional[Annotated[tuple[str, ...], arg(metavar="PROMPT ...")]] = ()
    """Texts to continue."""
    prompt_file: File = None
    """Prompts from a file instead: JSON lines where its name ends in .jsonl, else one prompt a line."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, or smollm2-135m."""
    draft: str = "ngram"
    """Who guesses: ngram, none, exit:M for the target's own first M layers, or a model with its vocabulary (directory,
    GGUF file or name)."""
    chat: bool = False
    """Put each prompt into the target's chat template, as what the user says."""
    max_new_tokens: int = 256
    """Most new tokens of an answer."""
    seed: int = 0
    """Of all randomness. A row's own key comes from it and from the prompt's place, whatever the batch."""
    batch: int = 1
    """Most prompts that are answered at a time."""
    format: Literal["text", "jsonl"] = "text"
    """Answers for people, or one JSON object a line."""
    output: File = None
    """Write the answers to this file instead of standard output."""
    logprobs: bool = False
    """Add the log-probability of each token to JSON lines."""
    sampling: OmitArgPrefixes[SamplingParams] = SAMPLING
    config: OmitArgPrefixes[GenerateConfig] = CONFIG

    def __post_init__(self):
        self.sampling.check()
        requests.check_rule(self.config, self.sampling)
        check_integers(self, max_new_tokens=(1, 2**31), batch=(1, 2**31), seed=(0, 2**32))
        if bool(self.prompts) == (self.prompt_file is not None):
            got = "prompts and --prompt-file" if self.prompts else "no prompt"
            raise ValueError(f"got {got}; expected prompts as arguments, or --prompt-file with a file of them")


def main(args: Sequence[str]) -> int:
    """Run the command; 1 where some prompts could not be answered, 2 where none could."""
    options = parse(Options, "generate", args)
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    prompts = from_arguments(options.prompts) if options.prompt_file is None else from_file(options.prompt_file)
    target = load(options.target)
    chosen = drafting.make(options.draft, target)
    asked, faults = requests.prepare(
        prompts,
        target,
        config=options.config,
        sampling=options.sampling,
        max_new_tokens=options.max_new_tokens,
        chat=options.chat,
    )
    for fault in faults:
        errors.print(f"{fault.where}: {fault.why}", markup=False)
    if not asked:
        return _close(faults, len(prompts), errors)
    engine = Engine(chosen, options.config, min(options.batch, len(asked)), options.seed)

    answers = []
    with _open(options.output) as file:
        console = Console(file=file, highlight=False)
        with _progress(len(asked), quiet=file.isatty()) as (progress, task):

            def compiling(slots: int) -> None:
                progress.update(task, description=f"compiling for prompts of {slots} tokens")

            for found in answer(engine, asked, compiling=compiling):
                progress.update(task, advance=1, description="answering")
                if options.format == "jsonl":
                    file.write(output.line(output.record(found, target.tokenizer, logprobs=options.logprobs)))
                    file.flush()
                else:
                    output.print_answer(found, target.tokenizer, console)
                answers.append(found._replace(logprobs=[], sampled_logprobs=[]))
    if answers:
        errors.print(output.metrics_table({options.draft: output.metrics(answers)}, title="compiling left out"))
    return _close(faults, len(prompts), errors)


def _close(faults: Sequence[Fault], total: int, errors: Console) -> int:
    if not faults:
        return 0
    errors.print(f"{len(faults)} of {total} prompts could not be answered", markup=False)
    return 2 if len(faults) == total else 1


@contextlib.contextmanager
def _open(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; expected a file in a folder that exists") from error
    with file:
        yield file


@contextlib.contextmanager
def _progress(total: int, *, quiet: bool):
    """A bar on standard error where that is a terminal and the answers do not go to the same one."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=quiet or not console.is_terminal,
    ) as progress:
        yield progress, progress.add_task("starting", total=total)

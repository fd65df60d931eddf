"""``specdec demo``: real answers without a drafter and with some, the same text each time, and what it saved."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from ..batch import Answer, BatchGenerator, Request
from ..control import adaptive
from ..models import Tokenizer
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError, consoles, drafting, output, requests
from .engine import Timed, generator, one_at_a_time
from .options import parse
from .prompts import SHIPPED, Fault, from_file

# Answers under the coupled rule depend on the seed alone and not on the drafter, and at temperature 0 all rules agree:
# one program a drafter shows both. The small chunk leaves the shipped prompts one shape.
_CONFIG = GenerateConfig(capacity=512, draft_length=7, rule="coupled", prefill_chunk=64)
_SAMPLED = 2
"""Prompts that are answered at a temperature as well."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Answer prompts without a drafter and with some, check that the text is the same, and compare the speed."""

    prompt_file: Path = SHIPPED
    """Prompts as in specdec generate; by default those that come with the package."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: Annotated[tuple[str, ...], arg(metavar="DRAFT ...")] = ()
    """Who guesses, one after the other: ngram, exit:M for the target's own first M layers, a feature head, or a model
    with its vocabulary (directory, GGUF file or name). By default the feature head that comes with the package, where
    the target is smollm2-135m, and ngram."""
    draft_length: int = _CONFIG.draft_length
    """Most guesses in a round, which has as many as pay."""
    max_new_tokens: int = 96
    """Most new tokens of an answer."""
    temperature: float = 0.7
    """Of the answers that are sampled."""
    seed: int = 0
    """Of the answers that are sampled."""

    def __post_init__(self):
        dataclasses.replace(_CONFIG, draft_length=self.draft_length)
        SamplingParams(temperature=self.temperature).check()
        if "none" in self.draft:
            raise ValueError("draft is none; expected a drafter to compare plain decoding with, such as ngram")
        if len(set(self.draft)) < len(self.draft):
            raise ValueError(f"draft is {' '.join(self.draft)}; expected each drafter once")

    @property
    def drafts(self) -> tuple[str, ...]:
        """As told, or what there is for the target."""
        return self.draft or (("smollm2-135m-head",) if self.target == "smollm2-135m" else ()) + ("ngram",)


def main(args: Sequence[str]) -> int:
    """Run the command; 1 where a drafter changed an answer or a prompt could not be answered."""
    options = parse(Options, "demo", args)
    console = consoles.console()
    prompts = from_file(options.prompt_file)
    console.print(f"Loading {options.target}", style="dim")
    target = drafting.load_target(options.target, *options.drafts)
    config = dataclasses.replace(_CONFIG, draft_length=options.draft_length)

    def ask_by(name: str) -> BatchGenerator:
        made = drafting.make(name, target)
        return generator(made, config, batch=1, seed=options.seed, controller=adaptive())

    runs = [ask_by(name) for name in ("none", *options.drafts)]

    def ask(which, temperature: float) -> tuple[list[Request], list[Fault]]:
        sampling = SamplingParams(temperature=temperature)
        return requests.prepare(
            which, target, config=config, sampling=sampling, max_new_tokens=options.max_new_tokens, chat=True
        )

    asked, faults = ask(prompts, 0.0)
    for fault in faults:
        consoles.errors().print(f"{fault.where}: {fault.why}", markup=False, soft_wrap=True)
    if not asked:
        raise UserError(f"{options.prompt_file} has no prompt that can be answered")
    console.print("Compiling a program without a drafter and one for each\n", style="dim")

    def rows(asked: Sequence[Request]) -> list[Row]:
        return _rows([one_at_a_time(run, asked) for run in runs], options.drafts, target.tokenizer, console)

    greedy = rows(asked)
    console.print(f"The first {_SAMPLED} again, sampled at temperature {options.temperature}\n", style="dim")
    sampled = rows(ask([one.source for one in asked[:_SAMPLED]], options.temperature)[0])
    console.print(
        "Tokens per second leave compiling out: each program ran once before it was timed. All ran in turns.\n",
        soft_wrap=True,
    )
    _report("greedy", greedy, options.drafts, console)
    _report(f"sampled at temperature {options.temperature}, coupled rule", sampled, options.drafts, console)
    same = _same(greedy) == len(greedy) and _same(sampled) == len(sampled)
    return 0 if same and not faults else 1


Row = tuple[Timed, ...]
"""An answer without a drafter and then with each."""


def _rows(
    runs: Sequence[Iterable[Timed]], drafts: Sequence[str], tokenizer: Tokenizer | None, console: Console
) -> list[Row]:
    """Each answer without and with the drafters, in turns so that a slow moment of the machine hits all."""
    rows = []
    for row in zip(*runs, strict=True):
        rows.append(row)
        answer = row[-1].answer
        output.print_answer(answer, tokenizer, console, under=_asked(answer))
        console.print(_line(row, drafts) + "\n", style="dim", soft_wrap=True, markup=False)
    return rows


def _asked(answer: Answer) -> str:
    """The first line of the question."""
    prompt = answer.request.source
    text = prompt.messages[-1]["content"] if prompt.messages else prompt.prompt or ""
    return text.partition("\n")[0]


def _line(row: Row, drafts: Sequence[str]) -> str:
    plain, *drafted = (_metrics([timed]) for timed in row)
    told = [f"{plain['tokens']} tokens in {plain['rounds']} rounds without a drafter"]
    for place, (name, found) in enumerate(zip(drafts, drafted, strict=True), 1):
        same = "the same text" if row[place].answer.token_ids == row[0].answer.token_ids else "OTHER TEXT"
        told.append(f"{name}: {found['rounds']} rounds, {_speedup(found, plain):.2f} times as fast, {same}")
    return f"[{'; '.join(told)}]"


def _report(title: str, rows: Sequence[Row], drafts: Sequence[str], console: Console) -> None:
    plain, *drafted = (_metrics(answers) for answers in zip(*rows, strict=True))
    runs = {"no drafter": plain | {"speedup": 1.0}}
    runs |= {name: found | {"speedup": _speedup(found, plain)} for name, found in zip(drafts, drafted, strict=True)}
    console.print(output.metrics_table(runs, title=title))
    console.print(f"{_same(rows)} of {len(rows)} answers are token for token the same with and without.\n")


def _same(rows: Sequence[Row]) -> int:
    return sum(all(timed.answer.token_ids == row[0].answer.token_ids for timed in row) for row in rows)


def _speedup(found: dict[str, Any], plain: dict[str, Any]) -> float:
    """Of tokens per second, so that it is fair even where the texts should differ."""
    return found["tokens_per_second"] / plain["tokens_per_second"]


def _metrics(answers: Sequence[Timed]) -> dict[str, Any]:
    return output.metrics([timed.answer for timed in answers], sum(timed.seconds for timed in answers))

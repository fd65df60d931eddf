"""``specdec demo``: real answers with and without a drafter, the same text twice, and what it saved."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

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
    """Answer prompts with and without a drafter, check that the text is the same, and compare the speed."""

    prompt_file: Path = SHIPPED
    """Prompts as in specdec generate; by default those that come with the package."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "ngram"
    """Who guesses: ngram, exit:M for the target's own first M layers, or a model with its vocabulary (directory,
    GGUF file or name)."""
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
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter to compare plain decoding with, such as ngram")


def main(args: Sequence[str]) -> int:
    """Run the command; 1 where a drafter changed an answer or a prompt could not be answered."""
    options = parse(Options, "demo", args)
    console = consoles.console()
    prompts = from_file(options.prompt_file)
    console.print(f"Loading {options.target}", style="dim")
    target = drafting.load_target(options.target, options.draft)
    config = dataclasses.replace(_CONFIG, draft_length=options.draft_length)

    def ask_by(name: str) -> BatchGenerator:
        made = drafting.make(name, target)
        return generator(made, config, batch=1, seed=options.seed, controller=adaptive())

    plain, drafted = ask_by("none"), ask_by(options.draft)

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
    console.print("Compiling a program without and one with the drafter\n", style="dim")

    def pairs(asked: Sequence[Request]) -> list[Pair]:
        return _pairs(one_at_a_time(plain, asked), one_at_a_time(drafted, asked), target.tokenizer, console)

    greedy = pairs(asked)
    console.print(f"The first {_SAMPLED} again, sampled at temperature {options.temperature}\n", style="dim")
    sampled = pairs(ask([one.source for one in asked[:_SAMPLED]], options.temperature)[0])
    console.print(
        "Tokens per second leave compiling out: each program ran once before it was timed. Both ran in turns.\n",
        soft_wrap=True,
    )
    _report("greedy", greedy, options.draft, console)
    _report(f"sampled at temperature {options.temperature}, coupled rule", sampled, options.draft, console)
    same = _same(greedy) == len(greedy) and _same(sampled) == len(sampled)
    return 0 if same and not faults else 1


Pair = tuple[Timed, Timed]


def _pairs(
    plain: Iterable[Timed], drafted: Iterable[Timed], tokenizer: Tokenizer | None, console: Console
) -> list[Pair]:
    """Each answer without and with the drafter, in turns so that a slow moment of the machine hits both."""
    pairs = []
    for pair in zip(plain, drafted, strict=True):
        pairs.append(pair)
        answer = pair[1].answer
        output.print_answer(answer, tokenizer, console, under=_asked(answer))
        console.print(_line(pair) + "\n", style="dim", soft_wrap=True, markup=False)
    return pairs


def _asked(answer: Answer) -> str:
    """The first line of the question."""
    prompt = answer.request.source
    text = prompt.messages[-1]["content"] if prompt.messages else prompt.prompt or ""
    return text.partition("\n")[0]


def _line(pair: Pair) -> str:
    one, other = (_metrics([timed]) for timed in pair)
    same = "the same text" if _same([pair]) else "OTHER TEXT"
    return (
        f"[{other['tokens']} tokens in {other['rounds']} rounds, {one['rounds']} without the drafter; "
        f"{_speedup([pair]):.2f} times as fast; {same}]"
    )


def _report(title: str, pairs: Sequence[Pair], draft: str, console: Console) -> None:
    plain, drafted = (_metrics(answers) for answers in zip(*pairs, strict=True))
    runs = {"no drafter": plain | {"speedup": 1.0}, draft: drafted | {"speedup": _speedup(pairs)}}
    console.print(output.metrics_table(runs, title=title))
    console.print(f"{_same(pairs)} of {len(pairs)} answers are token for token the same with and without.\n")


def _same(pairs: Sequence[Pair]) -> int:
    return sum(plain.answer.token_ids == drafted.answer.token_ids for plain, drafted in pairs)


def _speedup(pairs: Sequence[Pair]) -> float:
    """Of tokens per second, so that it is fair even where the texts should differ."""
    plain, drafted = (_metrics(answers)["tokens_per_second"] for answers in zip(*pairs, strict=True))
    return drafted / plain


def _metrics(answers: Sequence[Timed]) -> dict[str, Any]:
    return output.metrics([timed.answer for timed in answers], sum(timed.seconds for timed in answers))

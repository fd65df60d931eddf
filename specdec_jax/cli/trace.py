"""``specdec trace``: one generation, round by round, live in the terminal and as a page."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from tyro.conf import OmitArgPrefixes, Positional, arg

from ..control import CONTROLLERS
from ..sampling import SamplingParams
from ..state import GenerateConfig
from ..trace import Moment, record
from ..viz import picture, terminal, trace_page
from . import INTERRUPTED, consoles, costs, drafting, requests
from .options import CONFIG, SAMPLING, File, check_integers, check_outputs, check_text, parse


@dataclasses.dataclass(frozen=True)
class Options:
    """Continue a prompt, and show of each round what was drafted, kept, refused, corrected and added.

    In a terminal the text is shown as it grows; the page is written at the end, or of what there is after Ctrl-C.
    """

    prompt: Positional[Annotated[str, arg(metavar="PROMPT")]]
    """Text to continue."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "ngram"
    """Who guesses: ngram, none, exit:M for the target's own first M layers, a feature head, or a model with its
    vocabulary (directory, GGUF file or name)."""
    controller: Literal["adaptive", "constant"] = "adaptive"
    """How many guesses a round has: as many as pay, by what was kept so far and by what specdec tune measured here, or
    always --draft-length, where the drafter makes so many."""
    chat: bool = False
    """Put the prompt into the target's chat template, as what the user says."""
    max_new_tokens: int = 128
    """Most new tokens."""
    seed: int = 0
    """Of all randomness."""
    output: Path = Path("trace.html")
    """The page to write; it opens from the disk and needs no network."""
    figures: File = None
    """A folder for the page's figures, each as PNG and SVG."""
    sampling: OmitArgPrefixes[SamplingParams] = SAMPLING
    config: OmitArgPrefixes[GenerateConfig] = CONFIG

    def __post_init__(self):
        check_text(prompt=self.prompt)
        self.sampling.check()
        requests.check_rule(self.config, self.sampling)
        check_integers(self, max_new_tokens=(1, 2**31), seed=(0, 2**32))


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "trace", args)
    check_outputs(options.output, options.figures)
    console = consoles.console()
    target = drafting.load_target(options.target, options.draft)
    chosen = drafting.make(options.draft, target)
    request = requests.only(
        options.prompt,
        target,
        config=options.config,
        sampling=options.sampling,
        max_new_tokens=options.max_new_tokens,
        chat=options.chat,
    )
    tokenizer = target.tokenizer
    assert tokenizer is not None, "a prompt was read with it"
    bytes_of = functools.cache(tokenizer.bytes_of)
    with console.status("reading the prompt, compiling"):
        moments = record(
            chosen.target.model,
            target.params,
            chosen.drafter,
            chosen.params,
            jnp.asarray([request.token_ids]),
            [len(request.token_ids)],
            key=jax.random.fold_in(jax.random.key(options.seed), request.index)[None],  # as `specdec generate` has it
            sampling=request.sampling,
            config=options.config,
            max_new_tokens=request.max_new_tokens,
            eos_tokens=tokenizer.eos_ids,
            controller=CONTROLLERS[options.controller](),
            costs=costs.find(chosen, options.config, 1),
        )
    if console.is_terminal:
        moments = terminal.watch(moments, request.token_ids, bytes_of, console)
    seen, stopped = _until_interrupted(moments)
    if not seen:
        return INTERRUPTED

    written = trace_page.page(
        seen,
        request.token_ids,
        bytes_of,
        target=target.name,
        draft=chosen.name,
        rule=options.config.rule,
    )
    options.output.write_text(written, encoding="utf-8")
    if options.figures is not None:
        for one in trace_page.pictures(seen, 0):
            picture.save(one, options.figures)
    plain = sum(record.is_plain for record in trace_page.row_of(seen, 0))
    what = f"{options.output}: {len(seen)} rounds, {plain} without a guess"
    console.print(f"{what}, then interrupted" if stopped else what, markup=False, soft_wrap=True)
    return INTERRUPTED if stopped else 0


def _until_interrupted(moments: Iterable[Moment]) -> tuple[list[Moment], bool]:
    """All rounds, or those before Ctrl-C, and whether it came: a long recording is worth its page either way."""
    seen: list[Moment] = []
    try:
        for moment in moments:
            seen.append(moment)
    except KeyboardInterrupt:
        return seen, True
    return seen, False

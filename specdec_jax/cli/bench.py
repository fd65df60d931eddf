"""``specdec bench``: plain and speculative decoding beside transformers, on the same weights, prompts and threads."""

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
from rich.console import Console
from tyro.conf import OmitArgPrefixes

from ..models import Loaded, load, pair, resolve, save
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError, consoles, costs, drafting, requests, startup
from .options import File, check_outputs, parse
from .output import known
from .prompts import SHIPPED, from_file
from .weights import HELD, Held

_CONFIG = GenerateConfig(capacity=512, draft_length=7, prefill_chunk=128)
_PICTURES = (".png", ".svg", ".pdf")


@dataclasses.dataclass(frozen=True)
class Options:
    """Time greedy decoding in turns: plain, with fixed draft lengths, with the adaptive one, and by transformers.

    Medians and spread, acceptance by place, the share of what the memory's bandwidth allows, peak memory, and the cost
    of a round against its own forward passes; tables and one line of JSON. `specdec tune` before it, for each batch
    size, lets the draft length be chosen by measured costs.
    """

    prompt_file: Path = SHIPPED
    """Prompts as in specdec generate; by default those that come with the package."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "ngram"
    """Who guesses: ngram, exit:M for the target's own first M layers, a feature head such as smollm2-135m-head, or a
    model with its vocabulary (directory, GGUF file or name), which transformers is then assisted by too."""
    random_draft: bool = False
    """Give the drafter random weights, which make it useless: what speculation costs where it cannot gain."""
    batches: tuple[int, ...] = (1, 4)
    """Prompts that are answered at a time."""
    fixed: tuple[int, ...] = (3, 7)
    """Draft lengths that the adaptive one is held against."""
    draft_length: int = _CONFIG.draft_length
    """Most guesses in a round of the adaptive draft length, and guesses in transformers' prompt lookup."""
    capacity: int = _CONFIG.capacity
    """Most tokens a row may hold, prompt included."""
    max_new_tokens: int = 128
    """Most new tokens of an answer."""
    repeats: int = 3
    """Times that each answer is timed; the median counts."""
    threads: int = 2
    """Processor threads for either side."""
    transformers: bool = True
    """Run transformers too, which comes with specdec-jax[bench]; it speculates at batch 1 only."""
    startup: bool = True
    """Also time how long specdec generate takes to begin: in two processes, the first with nothing compiled yet, the
    second with what the first has kept."""
    picture: File = None
    """Draw speed by batch size and acceptance by place; .png, .svg or .pdf."""
    weights: OmitArgPrefixes[Held] = HELD

    def __post_init__(self):
        self.config()
        self.weights.check(self.draft)
        for name in ("max_new_tokens", "repeats", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected >= 1")
        for name in ("batches", "fixed"):
            if min(getattr(self, name), default=0) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least one number, and all >= 1")
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter to compare plain decoding with, such as ngram")
        if self.draft == "ngram" and self.random_draft:
            raise ValueError("draft is ngram, which has no weights; expected another drafter to make random")
        if self.picture is not None and self.picture.suffix not in _PICTURES:
            raise ValueError(f"picture is {self.picture}; expected a name that ends in one of {', '.join(_PICTURES)}")

    def config(self) -> GenerateConfig:
        """The static part."""
        return dataclasses.replace(_CONFIG, capacity=self.capacity, draft_length=self.draft_length)


def main(args: Sequence[str]) -> int:
    """Run the command."""
    options = parse(Options, "bench", args)
    if options.picture is not None:
        check_outputs(options.picture, None)
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it may use cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    from .. import bench

    errors = consoles.errors(style="dim")
    prompts = from_file(options.prompt_file)
    begins = _startup(options, errors) if options.startup else None
    errors.print(f"loading {options.target}")
    target = drafting.load_target(options.target, options.draft, weights=options.weights.target_weights)
    options.weights.announce(target, errors)
    config = options.config()
    asked, faults = requests.prepare(
        prompts,
        target,
        config=config,
        sampling=SamplingParams(temperature=0.0),
        max_new_tokens=options.max_new_tokens,
        chat=True,
    )
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    built, draft = _drafted(options, target)
    with _others(options, target) as others:
        found = bench.measure(
            built,
            draft,
            others,
            [request.token_ids for request in asked],
            batches=options.batches,
            fixed=options.fixed,
            config=config,
            max_new_tokens=options.max_new_tokens,
            repeats=options.repeats,
            progress=errors.print,
        )
    found["threads"] = options.threads
    if begins is not None:
        found["startup"] = {name: one._asdict() for name, one in begins.items()}
    _show(found, options)
    return 0


def _startup(options: Options, errors: Console) -> dict[str, startup.StartUp]:
    errors.print("starting specdec generate, twice")
    return startup.measure(
        options.target,
        options.draft,
        target_weights=options.weights.target_weights,
        draft_weights=options.weights.draft_weights,
        capacity=options.capacity,
        draft_length=options.draft_length,
    )


def _drafted(options: Options, target: Loaded):
    """The target as the drafter needs it built, and the drafter."""
    from .. import bench

    made = drafting.make(options.draft, target, weights=options.weights.draft_weights)
    assert made.drafter is not None, "Options refuses none"
    passes = [bench.Pass(*one) for one in made.passes(options.draft_length)]
    name, params = made.name, made.params
    if options.random_draft:
        name, params = f"{name} with random weights", bench.useless(params, jax.random.key(0))
    config = options.config()
    return made.target, bench.Draft(name, made.drafter, params, passes, lambda batch: costs.find(made, config, batch))


@contextlib.contextmanager
def _others(options: Options, target: Loaded) -> Iterator[Callable[[int], Mapping]]:
    """transformers' contestants by batch size; what they are loaded from is gone afterwards."""
    if not options.transformers:
        yield lambda batch: {}
        return
    from ..bench.huggingface import transformers_contestants

    with tempfile.TemporaryDirectory() as folder:
        try:
            others = transformers_contestants(
                resolve(options.target).path,
                assistant=_assistant(options, target, Path(folder) / "draft"),
                eos_tokens=target.tokenizer.eos_ids if target.tokenizer else (),
                draft_length=options.draft_length,
                threads=options.threads,
            )
        except ImportError as error:
            raise UserError(
                f"{error.name} is not installed; run pip install 'specdec-jax[bench]', or leave it out with "
                "--no-transformers"
            ) from error
        except (ValueError, OSError) as error:
            raise UserError(f"transformers cannot load it ({error}); leave it out with --no-transformers") from error
        yield others


def _assistant(options: Options, target: Loaded, folder: Path) -> Path | None:
    """The draft model written out for transformers, whole: it knows neither other drafters nor draft vocabularies."""
    if options.random_draft or not drafting.is_model(options.draft):
        return None
    draft = pair(target, load(options.draft))
    save(folder, draft.config, draft.params, tokenizer=draft.tokenizer)
    return folder


def _show(found: dict, options: Options) -> None:
    from ..bench.report import report

    report(found, consoles.console())
    if options.picture is not None:
        from ..bench.picture import picture
        from ..viz.picture import style

        with style():
            picture(found).savefig(options.picture, dpi=200)
    print(json.dumps(known(found), allow_nan=False))

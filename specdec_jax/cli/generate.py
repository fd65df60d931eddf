"""``specdec generate``: continue prompts with a model, drafted for by another or by n-grams."""

import contextlib
import dataclasses
import functools
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional, arg

from ..batch import ALONE, POD, Host, JobError, PassingError, joined
from ..batch.files import is_remote
from ..control import Controller
from ..models import LoadError
from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError, consoles, controllers, drafting, in_order, job, requests
from .drain import STOPPED, Drain, draining
from .meshes import held_whole, mesh_of
from .options import CONFIG, SAMPLING, AnyFile, check_integers, check_text, parse
from .prompts import form_of
from .weights import HELD, Held

_FILES = (".txt", ".json", ".ndjson", ".csv", ".md", ".log", ".gz")
"""Suffixes of what nobody would call a directory."""
_LASTING = (JobError, UserError, LoadError)
"""Errors with a message that says what to do; to start again is no help, but for a PassingError."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Continue each prompt with tokens distributed exactly as the target alone would draw them.

    Prompts stand on the command line, or in a file: JSON lines with one of prompt, messages or token_ids and, if
    wanted, id, category, temperature, top_k, top_p, min_p, max_new_tokens and seed, or text with one prompt a line.
    Answers come out in the order of the prompts.

    With --prompt-file and --output it is a job: answers go to disk as they finish, each a line of JSON with its
    prompt's index, and the same command started again goes on where it was stopped. Exit status: 0 all answered, 1 some
    prompts cannot be, 2 refused, 3 stopped before the end, 70 an error that nobody expected.
    """

    prompts: Positional[Annotated[tuple[str, ...], arg(metavar="PROMPT ...")]] = ()
    """Texts to continue."""
    prompt_file: AnyFile = None
    """Prompts from a file instead, local or gs://: JSON lines where its name ends in .jsonl, else one prompt a line."""
    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "ngram"
    """Who guesses: ngram, none, exit:M for the target's own first M layers, a feature head such as smollm2-135m-head,
    or a model with its vocabulary (directory, GGUF file or name)."""
    controller: controllers.Name | None = None
    """How many guesses a round has: as many as pay, by what was kept so far and by what specdec tune measured here, or
    always --draft-length. By default adaptive, but constant for a job whose answers would depend on their neighbours:
    one that is sampled by another rule than coupled."""
    chat: bool = False
    """Put each prompt into the target's chat template, as what the user says."""
    system: str | None = None
    """What the system says first, in conversations that do not begin with a message of it; for --chat and for prompts
    of messages."""
    template_json: Annotated[str | None, arg(metavar="JSON")] = None
    """Values that the chat template asks for, as an object, such as {"enable_thinking": false} for Qwen3's; for --chat
    and for prompts of messages."""
    max_new_tokens: int = 256
    """Most new tokens of an answer."""
    seed: int = 0
    """Of all randomness. A row's own key comes from it and from the prompt's place, whatever the batch."""
    batch: int = 1
    """Most prompts that are answered at a time; when one ends, the next takes its place."""
    format: Literal["text", "jsonl"] | None = None
    """Answers for people, or one JSON object a line; by default JSON lines for a job, and text otherwise."""
    output: Annotated[str | None, arg(metavar="PATH")] = None
    """Write the answers to this file instead of standard output; for a job a directory, or a file that ends in .jsonl,
    local or gs://."""
    logprobs: bool = False
    """Add the log-probability of each token to JSON lines."""
    drain: float = 20.0
    """Seconds for which a job that gets SIGTERM finishes what runs; what does not is answered by the next run."""
    tensor: int | None = None
    """With a job: chips that hold the models between them. The chips are taken in groups of so many, and the batch is
    divided over the groups. By default one chip does it all."""
    draft_whole: bool = False
    """With --tensor: hold the draft model whole on every chip instead of dividing it too."""
    scope: Literal["process", "host", "pod"] = "process"
    """Who answers a job: this process alone; all hosts that run the same command, a share each; or their chips as one
    pod, for models that no host can hold."""
    coordinator: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """With --scope host or pod: the address of the first host, where the environment does not tell."""
    processes: int | None = None
    """With --scope host or pod: how many hosts there are."""
    process: int | None = None
    """With --scope host or pod: the number of this one, from 0."""
    weights: OmitArgPrefixes[Held] = HELD
    sampling: OmitArgPrefixes[SamplingParams] = SAMPLING
    config: OmitArgPrefixes[GenerateConfig] = CONFIG

    def __post_init__(self):
        self.sampling.check()
        self.weights.check(self.draft)
        requests.check_rule(self.config, self.sampling)
        check_integers(self, max_new_tokens=(1, 2**31), batch=(1, 2**31), seed=(0, 2**32))
        if bool(self.prompts) == (self.prompt_file is not None):
            got = "prompts and --prompt-file" if self.prompts else "no prompt"
            raise ValueError(f"got {got}; expected prompts as arguments, or --prompt-file with a file of them")
        messages = self.prompt_file is not None and form_of(self.prompt_file) == "jsonl"  # or may be
        for name in ("system", "template_json"):
            if getattr(self, name) is not None and not (self.chat or messages):
                raise ValueError(f"{name} is given, but chat is not; expected --chat beside it, or JSON lines")
        check_text(system=self.system, template_json=self.template_json)
        requests.template_variables(self.template_json)
        if self.is_job and Path(str(self.output)).suffix in _FILES and not Path(str(self.output)).is_dir():
            raise ValueError(
                f"output is {self.output}, and a job writes a directory; expected another name for it, a file that "
                "ends in .jsonl, or --format text beside it"
            )
        if not 0 <= self.drain < float("inf"):
            raise ValueError(f"drain is {self.drain}; expected seconds, 0 or more")
        for name, value in (("scope", None if self.scope == "process" else self.scope), ("tensor", self.tensor)):
            if value is not None and not self.is_job:
                raise ValueError(
                    f"{name} is {value}, but this is no job; expected --prompt-file and --output, as JSON lines"
                )
        if self.tensor is not None:
            check_integers(self, tensor=(1, 2**31))
        elif self.draft_whole:
            raise ValueError(
                "draft_whole is asked for, but tensor is missing; expected --tensor with a number of chips"
            )
        if self.logprobs and self.format != "jsonl" and not self.is_job:
            raise ValueError("logprobs are asked for, but answers come as text; expected --format jsonl beside it")
        if self.scope == "pod" and self.tensor is None:
            raise ValueError("scope is pod, but tensor is missing; expected --tensor with a number of chips")
        found = re.fullmatch(r".+:(\d{1,5})", self.coordinator or "")
        if self.coordinator is not None and (found is None or int(found[1]) > 65535):
            raise ValueError(f"coordinator is {self.coordinator!r}; expected host:port, such as 10.0.0.1:1234")
        given = [name for name in ("coordinator", "processes", "process") if getattr(self, name) is not None]
        if given and self.scope == "process":
            raise ValueError(f"got {given[0]}, but scope is process; expected it with --scope host or pod only")

    @property
    def chosen_controller(self) -> controllers.Name:
        """As told, or by the rule."""
        return controllers.chosen(self.controller, self.config.rule, is_job=self.is_job)

    def control(self) -> Controller:
        return controllers.made(self.chosen_controller)

    @property
    def is_job(self) -> bool:
        """Whether answers are kept as those of a job."""
        return self.prompt_file is not None and self.output is not None and self.format != "text"


def main(args: Sequence[str]) -> int:
    """Run the command; 1 where some prompts could not be answered, 2 where none could, 3 where a job was stopped."""
    options = parse(Options, "generate", args)
    errors = consoles.errors()
    # A job may be asked to stop while it joins the others, loads or leaves, too.
    stopping = draining(options.drain) if options.is_job else contextlib.nullcontext(Drain(options.drain))
    try:
        with stopping as drain, _hosts(options) as host:
            try:
                return _answer(options, host, drain, errors)
            except Exception as error:
                if options.scope == "pod":  # to leave, a host waits for the others, who may wait for it
                    why = error if isinstance(error, _LASTING) else traceback.format_exc()
                    errors.print(f"specdec generate: host {host.process + 1}: {why}", markup=False)
                raise
    except PassingError as error:
        errors.print(f"specdec generate: {error}", markup=False)
        return STOPPED
    except JobError as error:
        raise UserError(str(error)) from error


def _hosts(options: Options) -> contextlib.AbstractContextManager[Host]:
    if options.scope == "process":
        return contextlib.nullcontext(Host())
    return joined(options.coordinator, options.processes, options.process, in_step=options.scope == "pod")


def _answer(options: Options, host: Host, drain: Drain, errors: Console) -> int:
    peers = POD._replace(lasting=_LASTING) if options.scope == "pod" else ALONE
    with peers.together():
        # Before anything is loaded, which may take long.
        file = options.prompt_file
        local = None if file is None or is_remote(file) else Path(file)
        if options.is_job and local is not None and local.exists() and not local.is_file():
            raise UserError(f"{file} is no regular file; expected one, for a job reads its prompts again to go on")
        prompts = [] if options.is_job else in_order.prompts_of(options)
        mesh = mesh_of(options.tensor, options.batch, everywhere=options.scope == "pod")
        held = options.weights
        target = drafting.load_target(options.target, options.draft, mesh=mesh, weights=held.target_weights)
        on = None if options.draft_whole else mesh
        chosen = drafting.make(options.draft, target, on, weights=held.draft_weights)
    options.weights.announce(target, errors)
    whole = None if options.tensor is None else held_whole(target.name, target.config, options.tensor)
    if whole is not None:
        errors.print(whole, markup=False)
    reading = functools.partial(
        requests.reader,
        target,
        config=options.config,
        sampling=options.sampling,
        max_new_tokens=options.max_new_tokens,
        chat=options.chat,
        system=options.system,
        variables=requests.template_variables(options.template_json),
    )
    if options.is_job:
        return job.answer(options, chosen, reading, job.Crew(host, peers, mesh), drain, errors)
    return in_order.answer(options, chosen, prompts, reading(), errors)

"""``specdec generate`` with a prompt file and an output: a job that goes on where it was stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from jax.sharding import Mesh
from rich.console import Console

from .._typing import PyTree
from ..batch import (
    ALONE,
    Finished,
    Host,
    Peers,
    Refused,
    claim,
    fingerprint,
    open_results,
    outline,
    place,
    resume,
    run_job,
    sampled,
)
from ..batch.fingerprint import digest_of
from ..models import NAMES, Tokenizer, heads, resolve
from . import UserError, output
from .drafting import Drafting, is_model
from .drain import STOPPED, Drain
from .engine import generator
from .progress import bar
from .prompts import distinct
from .requests import Reader
from .snapshot import Snapshot

if TYPE_CHECKING:
    from .generate import Options

_SETTINGS = ("max_new_tokens", "seed", "chat", "system", "template_json", "logprobs")


class Crew(NamedTuple):
    """Who answers a job."""

    host: Host
    """This one, and whose results it writes."""
    peers: Peers
    """Those that decode together with it."""
    mesh: Mesh | None
    """The devices that they decode on."""

    @property
    def asks(self) -> Host:
        """Whose prompts this process decodes: with peers, all of them."""
        return self.host if self.peers is ALONE else Host()


def answer(
    options: Options, chosen: Drafting, reading: Callable[..., Reader], crew: Crew, drain: Drain, errors: Console
) -> int:
    """Answer what is left of this host's share; returns the exit status.

    ``reading`` makes a reader for the time ``now`` at which the job began, however often it was started again since.
    It stops once it is asked to ``drain``.

    Raises:
        JobError: the output is another job's, damaged, or in use, or cannot be written.
    """
    prompts, where = options.prompt_file, options.output
    assert prompts is not None, "Options.is_job"
    assert where is not None, "Options.is_job"
    host, peers, asks = crew.host, crew.peers, crew.asks
    to = place(where, host.process, host.processes)
    tokenizer, tally = chosen.target.tokenizer, output.Tally()

    with contextlib.ExitStack() as stack:
        with peers.together():  # before what the hosts compute together, which none may miss
            asked = Snapshot(prompts)
            total = sum(1 for _ in asked)
            if not total:
                raise UserError(f"{prompts} holds no prompts; expected one a line")
        with peers.together():
            # An array that is cut over hosts says nothing of what each of them read.
            files = () if peers is ALONE else files_of(options)
            outlined = identity(options, chosen, asked, of=outline)
        peers.require_same(in_step(options, outlined, files))  # before what they compute together
        identified = identity(options, chosen, asked)
        peers.require_same(in_step(options, identified))
        with peers.together():
            begun = claim(to, identified)
            results = stack.enter_context(open_results(to))
            claim(to, identified)  # in a store of objects another job may have claimed it until now
            progress = resume(place(where, *asks))
        progress.done = peers.union(progress.done, total)
        progress.errors = peers.union(progress.errors, total)
        # Hosts may keep manifests of their own.
        read = reading(now=datetime.fromisoformat(peers.first(begun.isoformat())))
        share = len(range(asks.process, total, asks.processes))
        shown = stack.enter_context(bar(share))
        left = (pair for pair in asks.share(distinct(asked)) if pair[0] not in progress.done)

        def after(finished: Finished) -> None:
            tally.add(finished)
            for one in finished.answers:
                if isinstance(one, Refused):
                    errors.print(f"{one.source.where}: {one.why}", markup=False, soft_wrap=True)
            shown.answered(len(progress.done))

        run_job(
            generator(
                chosen,
                options.config,
                batch=options.batch,
                seed=options.seed,
                controller=options.control(),
                mesh=crew.mesh,
                compiling=shown.compiling,
            ),
            (read(index, prompt) for index, prompt in left),
            lambda found: output.record(found, tokenizer, logprobs=options.logprobs),
            results,
            progress,
            host=host,
            peers=peers,
            after=after,
            stop=lambda: drain.asked,
            over=lambda: drain.over,
        )

    if tally.metrics():
        errors.print(output.metrics_table({options.draft: tally.metrics()}, title="this run, compiling left out"))
    done = len(progress.done)
    whose = f" of host {asks.process + 1} of {asks.processes}" if asks.processes > 1 else ""
    errors.print(f"{done} of {share} prompts{whose} are done, {progress.failed} of them with an error", markup=False)
    if done < share:
        errors.print("stopped before the end; the same command goes on from here", markup=False)
        return STOPPED
    return 1 if progress.failed else 0


def in_step(options: Options, identified: Mapping[str, Any], files: Sequence[str] = ()) -> str:
    """Of all that hosts have to be told alike to run one program: what the answers depend on, its shapes and files."""
    told = {**identified, "batch": options.batch, "tensor": options.tensor, "files": files}
    return digest_of([json.dumps(told).encode()])


def files_of(options: Options) -> list[str]:
    """Of the models that are no part of the package, by what lies in their files."""
    own = (*NAMES, *heads())
    names = [name for name in (options.target, options.draft) if is_model(name) and name not in own]
    return [sampled(resolve(name, own).path) for name in names]


def identity(
    options: Options, chosen: Drafting, prompts: Snapshot, of: Callable[[PyTree], str] = fingerprint
) -> dict[str, Any]:
    """All that the answers depend on, as JSON. Where files lie, batch and hosts do not count.

    Parameters are told by their fingerprint, which hosts compute together, or as ``of`` says.
    """
    target = chosen.target
    return {
        "prompts": prompts.identity,
        "target": {"config": repr(target.config), "params": of(target.params)},
        "tokenizer": None if target.tokenizer is None else _of_tokenizer(target.tokenizer),
        "drafter": {"name": chosen.name, "config": chosen.config, "params": of(chosen.params)},
        "config": dataclasses.asdict(options.config),
        "controller": options.chosen_controller,
        "sampling": options.sampling._asdict(),
        **{name: getattr(options, name) for name in _SETTINGS},
    }


def _of_tokenizer(tokenizer: Tokenizer) -> str:
    template = None if tokenizer.chat_template is None else tokenizer.chat_template.source
    parts = (tokenizer.backend.to_str(), repr(tokenizer.eos_ids), repr(template), repr(tokenizer.template_names))
    return digest_of(part.encode() for part in parts)

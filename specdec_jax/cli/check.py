"""``specdec check``: whether a model answers with its drafter exactly as it would alone."""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import OmitArgPrefixes

from ..control import adaptive, constant
from ..drafters import ngram
from ..models import Tokenizer, dtype_of
from ..sampling import SamplingParams
from ..state import GenerateConfig
from ..testing.checks import SIGNIFICANCE
from ..testing.contracts import BrokenContractError
from ..testing.count_test import POWER
from ..testing.drafter import check_drafter
from ..testing.equality import Equality, Pair, answers, equality
from ..testing.language_model import check_language_model
from ..testing.next_tokens import DEPTH, NextTokens, next_tokens, room_after
from . import UserError, consoles, drafting, requests
from .options import parse
from .output import known
from .prompts import SHIPPED, from_file
from .weights import HELD, Held

_TEMPERATURE = 1.0
_SHOWN = 6
_NAME = 34
_IDLE = "No guess was kept, so this says nothing of the drafter: ask for more tokens or draws, or of other prompts"
_TOLERANCE = {"float32": 3e-3, "bfloat16": 0.5}
"""By which logits may differ between passes of different shapes, and q with them, see `check_drafter`.

In float32 SmolLM2-135M has places where rounding grows: of 288 random tokens one was 1.4e-3 off float64 when fed in
pieces (2.3e-4 in one pass, 4.0e-4 in transformers), and no other more than 2.5e-4, on a processor with AVX2.
"""


@dataclasses.dataclass(frozen=True)
class Options:
    """Check that a drafter changes nothing in what a model says, on prompts of yours.

    Contracts of model and drafter; the same tokens with the drafter as without, greedy and under the coupled rule, in a
    batch and alone; and next tokens drawn many times, counted against the model's own probabilities.
    """

    target: str = "smollm2-135m"
    """The model: a Hugging Face directory, a GGUF file, a checkpoint of this project, smollm2-135m, or the owner/name
    of a model on the Hugging Face Hub."""
    draft: str = "ngram"
    """Who guesses: ngram, exit:M for the target's own first M layers, a feature head, or a model."""
    layers: Literal["auto", "stacked", "unrolled"] = "stacked"
    """How the target's layers are run. The check compiles two dozen programs, which stacked layers make many times
    shorter; unrolled is what specdec generate runs on a CPU, and auto what it runs here."""
    prompt_file: Path = SHIPPED
    """Prompts as in specdec generate; by default those that come with the package."""
    draft_length: int = 4
    """Most guesses in a round."""
    capacity: int = 512
    """Most tokens a row may hold, prompt included."""
    max_new_tokens: int = 32
    """Most new tokens of the answers that are compared."""
    draws: int = 1024
    """Times that the next three tokens are drawn. Twice as many find a bias smaller by a factor of 1.4."""
    batch: int = 32
    """Most rows that are answered or drawn at a time."""
    seed: int = 0
    """Of everything drawn; the same seed gives the same report."""
    weights: OmitArgPrefixes[Held] = HELD

    def __post_init__(self):
        self.config("block")
        self.weights.check(self.draft)
        for name in ("max_new_tokens", "draws", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected >= 1")
        if self.draft == "none":
            raise ValueError("draft is none; expected a drafter to check, such as ngram")

    def config(self, rule: str) -> GenerateConfig:
        return GenerateConfig(capacity=self.capacity, draft_length=self.draft_length, rule=rule, prefill_chunk=64)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report."""

    check: str
    holds: bool
    what: str
    figures: dict[str, Any]

    @property
    def idle(self) -> bool:
        """Whether guesses were counted and none was kept: it holds, but of the drafter it says nothing."""
        return self.figures.get("accepted") == 0


def main(args: Sequence[str]) -> int:
    """Run the command; 1 where something does not hold."""
    options = parse(Options, "check", args)
    errors = consoles.errors(style="dim")
    prompts = from_file(options.prompt_file)
    errors.print(f"loading {options.target}")
    held = options.weights
    target = drafting.load_target(options.target, options.draft, layers=options.layers, weights=held.target_weights)
    held.announce(target, errors)
    made = drafting.make(options.draft, target, weights=held.draft_weights)
    pair = Pair(made.target.model, made.target.params, made.drafter, made.params)
    asked, faults = requests.prepare(
        prompts,
        target,
        config=options.config("block"),
        sampling=SamplingParams(temperature=0.0),
        max_new_tokens=options.max_new_tokens,
        chat=target.tokenizer is not None and target.tokenizer.chat_template is not None,
    )
    if faults:
        raise UserError(f"{faults[0].where}: {faults[0].why}")
    ids = [list(request.token_ids) for request in asked]
    shortest = min(ids, key=len)
    if (room := room_after(target.model, shortest, options.config("block"))) < DEPTH:
        raise UserError(
            f"the shortest prompt has {len(shortest)} tokens, after which a row has room for {room}; expected room for "
            f"the {DEPTH} tokens that are drawn: a shorter prompt or a larger --capacity"
        )
    dtype = str(dtype_of(target.params))

    console, found = consoles.console(), []
    name = drafting.named(options.target, options.weights.target_weights)
    console.print(f"{name} with {made.name}, {dtype}, K = {options.draft_length}\n", markup=False)
    for finding in findings(pair, ids, options, dtype, target.tokenizer, errors):
        found.append(finding)
        console.print(_line(finding))
    holds = all(finding.holds for finding in found)
    report = {"target": name, "draft": made.name, "dtype": dtype, "holds": holds}
    checks = [dataclasses.asdict(finding) | {"idle": finding.idle} for finding in found]
    print(json.dumps(report | {"checks": checks}))
    return 0 if holds else 1


def _line(finding: Finding) -> Table:
    """A table of one row, so that each is printed as soon as it is known and all have the same columns."""
    row = Table.grid(padding=(0, 2, 1, 0))
    row.add_column(width=2)
    row.add_column(width=_NAME)
    row.add_column()
    mark = Text("NO", "red") if not finding.holds else Text("--", "yellow") if finding.idle else Text("ok", "green")
    said = f"{finding.what}. {_IDLE}" if finding.idle else finding.what
    row.add_row(mark, Text(finding.check), Text(said))
    return row


def findings(
    pair: Pair, prompts: list[list[int]], options: Options, dtype: str, tokenizer: Tokenizer | None, errors: Console
) -> Iterator[Finding]:
    """All checks, one after the other."""
    tolerance = _TOLERANCE[dtype]
    errors.print("the model's contract")
    yield _contract("the model keeps its contract", check_language_model, pair[:2], tolerance)
    errors.print("the drafter's contract")
    yield _contract("the drafter keeps its contract", check_drafter, (*pair[2:], *pair[:2]), tolerance)
    yield from _equalities(pair, prompts, options, errors)
    errors.print(f"next tokens: {options.draws} draws, {options.batch} at a time")
    yield _next_tokens(pair, min(prompts, key=len), options, tokenizer)


def _contract(name: str, check, arguments, tolerance: float) -> Finding:
    try:
        check(*arguments, tolerance=tolerance)
    except (BrokenContractError, ValueError) as error:  # the latter where there was nothing to look at
        return Finding(name, False, str(error), {})
    return Finding(name, True, f"in every way it is relied on, to {tolerance:g} in logits", {"tolerance": tolerance})


def _equalities(pair: Pair, prompts: list[list[int]], options: Options, errors: Console) -> Iterator[Finding]:
    """Plain decoding of many rows at once is what everything else must equal."""
    lengths = np.array([len(ids) for ids in prompts], np.int32)
    padded = np.zeros((len(prompts), lengths.max()), np.int32)
    for row, ids in enumerate(prompts):
        padded[row, : len(ids)] = ids
    keys = jax.random.split(jax.random.key(options.seed), len(prompts))
    plain = pair._replace(drafter=None, drafter_params=None)
    together = min(len(prompts), options.batch)
    ways = {
        "with the drafter": (pair, together, constant()),
        "with the drafter, each row alone": (pair, 1, constant()),
        "with as many guesses as pay": (pair, together, adaptive()),
    }
    if options.draft != "ngram":
        ways["with n-grams"] = (pair._replace(drafter=ngram(), drafter_params=None), together, constant())
    for rule, temperature in (("greedy", 0.0), ("coupled", _TEMPERATURE)):
        how = {
            "rule": rule,
            "keys": keys,
            "temperature": temperature,
            "config": options.config(rule),
            "max_new_tokens": options.max_new_tokens,
        }
        errors.print(f"{rule}: without a drafter")
        wanted = answers(plain, padded, lengths, batch=together, **how)
        for name, (one, batch, controller) in ways.items():
            errors.print(f"{rule}: {name}")
            got = answers(one, padded, lengths, batch=batch, controller=controller, **how)
            found = equality(
                plain,
                padded,
                lengths,
                got,
                wanted,
                keys=keys if rule == "coupled" else None,
                temperature=temperature,
                width=options.draft_length + 1,
            )
            yield Finding(f"{rule}, {name}", found.holds, _equal(found), _figures(found))


def _equal(found: Equality) -> str:
    same = found.rows - len({one.row for one in (*found.differences, *found.endings)})
    text = f"{same} of {found.rows} rows equal plain decoding, {found.tokens} tokens compared"
    for one in found.differences:
        kind = "a tie, turned over by rounding" if one.is_tie else "NOT a tie"
        text += (
            f"; row {one.row} differs at token {one.place}: {kind} (gap {one.gap:.1e}, of which rounding moves "
            f"{one.rounding:.1e})"
        )
    text += "".join(f"; {ending}" for ending in found.endings)
    text += f"; {found.accepted} of {found.drafted} guesses kept"
    return text if found.tokens else f"{text}; there was nothing to compare"


def _figures(found: Equality) -> dict[str, Any]:
    differences = [one._asdict() | {"is_tie": one.is_tie} for one in found.differences]
    endings = [{"row": one.row, "what": str(one)} for one in found.endings]
    counts = {"rows": found.rows, "tokens": found.tokens, "drafted": found.drafted, "accepted": found.accepted}
    return known(counts | {"differences": differences, "endings": endings})


def _next_tokens(pair: Pair, prompt: list[int], options: Options, tokenizer: Tokenizer | None) -> Finding:
    """Drawn after the shortest prompt, which leaves most room and is read soonest."""
    name = "next tokens come as often as they should"
    try:
        found = next_tokens(
            pair,
            prompt,
            key=jax.random.key(options.seed),
            sampling=SamplingParams(temperature=_TEMPERATURE),
            config=options.config("block"),
            draws=options.draws,
            batch=options.batch,
        )
    except ValueError as error:
        return Finding(name, False, str(error), {})
    return Finding(name, found.holds, *_distribution(found, len(prompt), tokenizer))


def _distribution(found: NextTokens, after: int, tokenizer: Tokenizer | None) -> tuple[str, dict[str, Any]]:
    def text(tokens: tuple[int, ...], rest: bool) -> str:
        words = repr(tokenizer.decode(list(tokens))) if tokenizer is not None else str(list(tokens))
        return f"{words} and then another" if rest else words

    order = sorted(range(len(found.cells)), key=lambda i: -found.cells[i].probability)
    shown = [
        f"{text(found.cells[i].tokens, found.cells[i].rest)} {found.counts[i]} of "
        f"{found.cells[i].probability * found.draws:.1f} expected"
        for i in order[:_SHOWN]
    ]
    what = (
        f"{found.draws} draws of {DEPTH} tokens after the shortest prompt, of {after}, in {len(found.cells)} cells, "
        f"{found.compared} with the rare ones taken together: p-value {found.p_value:.2g}, expected above "
        f"{SIGNIFICANCE:g}. Had the likeliest of these lost "
        f"{found.smallest:.2g} of probability to the others, that would have shown with probability {POWER}; what "
        f"moves within one, such as a remainder, does not show. {found.accepted} of {found.drafted} guesses kept. "
        + "; ".join(shown)
    )
    cells = [
        {"tokens": list(cell.tokens), "rest": cell.rest, "probability": cell.probability, "count": count}
        for cell, count in zip(found.cells, found.counts, strict=True)
    ]
    assert math.isfinite(found.p_value)
    figures = {
        "draws": found.draws,
        "p_value": found.p_value,
        "compared": found.compared,
        "smallest_bias": found.smallest,
        "drafted": found.drafted,
        "accepted": found.accepted,
        "cells": cells,
    }
    return what, figures

"""Answers as JSON lines and as text, and the metrics of a run."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import state
from ..batch import Answer, Counts, Finished, Refused
from ..models import Tokenizer
from ..state import FinishReason
from .consoles import write_text
from .prompts import Fault, Prompt, label_of


def text_of(answer: Answer, tokenizer: Tokenizer | None) -> str:
    """The new text without its end token; the ids themselves where there is no tokenizer."""
    ids = answer.token_ids
    if tokenizer is None:
        return " ".join(map(str, ids))
    return tokenizer.decode(ids[:-1] if answer.finish_reason == FinishReason.END_TOKEN else ids)


class Tally:
    """Counts over many answers, of which none is kept."""

    def __init__(self):
        self._seconds = 0.0
        self._counts: Counts | None = None

    def add(self, finished: Finished) -> None:
        """Count the answers of a stretch, and its time."""
        self._seconds += finished.seconds
        for answer in finished.answers:
            if isinstance(answer, Answer):
                self._counts = answer.counts if self._counts is None else _sum(self._counts, answer.counts)

    def metrics(self) -> dict[str, Any]:
        """The metrics over all of them; None where nothing was counted."""
        if self._counts is None:
            return {}
        tokens = self._counts.tokens
        speed = tokens / self._seconds if self._seconds else math.nan
        found = {"tokens": tokens, **state.metrics(*self._counts), "tokens_per_second": speed}
        return known(found)


def _sum(one: Counts, other: Counts) -> Counts:
    added = [np.add(a, b).tolist() for a, b in zip(one, other, strict=True)]
    return Counts(*added)


def metrics(answers: Sequence[Answer], seconds: float) -> dict[str, Any]:
    """The metrics over these answers, which took so long."""
    tally = Tally()
    tally.add(Finished([*answers], seconds))
    return tally.metrics()


def known(value: Any) -> Any:
    """The value with None for what is not finite: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: known(member) for name, member in value.items()}
    if isinstance(value, list):
        return [known(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def record(found: Answer | Refused, tokenizer: Tokenizer | None, *, logprobs: bool) -> dict[str, Any]:
    """An answer, or why there is none, as it stands in a line of JSON."""
    if isinstance(found, Refused):
        return _label(found.index, found.source) | {"where": found.source.where, "error": found.why}
    stats = metrics([found], 0.0)
    del stats["tokens_per_second"]  # of the batch, not of a row
    fields = _label(found.request.index, found.request.source) | {
        "text": None if tokenizer is None else text_of(found, tokenizer),
        "token_ids": found.token_ids,
        "finish_reason": found.finish_reason.name.lower(),
    }
    if logprobs:
        fields["logprobs"] = {"raw": known(found.logprobs), "sampled": known(found.sampled_logprobs)}
    if found.finish_reason == FinishReason.NAN:
        fields["error"] = f"the target's logits were broken (NaN, +inf or all -inf) after {len(found.token_ids)} tokens"
    if found.finish_reason == FinishReason.INVALID:
        fields["error"] = "its prompt, limit or sampling values are impossible, as the program found"
    return fields | {"stats": stats}


def _label(index: int, prompt: Prompt | Fault) -> dict[str, Any]:
    category = {} if isinstance(prompt, Fault) or prompt.category is None else {"category": prompt.category}
    return {"id": label_of(prompt, index)} | category


def line(fields: Mapping[str, Any]) -> str:
    """One object as a line of JSON."""
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace").decode()  # what is no text, as in names of files, as JSON escapes it


def heading(answer: Answer) -> str:
    """How an answer is announced: its id, or the prompt's place."""
    prompt = answer.request.source
    label = prompt.where if prompt.id is None else str(prompt.id)
    label = label.encode(errors="backslashreplace").decode()  # a name of a file may hold what is no text
    return label if prompt.category is None else f"{label} ({prompt.category})"


def print_answer(answer: Answer, tokenizer: Tokenizer | None, console: Console, *, under: str = "") -> None:
    """An answer for people, ``under`` a line of its own if there is one."""
    console.rule(Text(heading(answer), style="bold"), align="left")
    if under:
        console.print(under + "\n", markup=False, style="dim", soft_wrap=True)
    write_text(text_of(answer, tokenizer), console)
    if answer.finish_reason in _CUT_OFF:
        console.print(f"[{_CUT_OFF[answer.finish_reason]}]", markup=False, style="bold")
    console.print()


_CUT_OFF = {
    FinishReason.LENGTH: "cut off: as many new tokens as were asked for; --max-new-tokens gives more",
    FinishReason.CAPACITY: "cut off: the row is full; --capacity gives more room",
    FinishReason.NAN: "broken off: the target's logits are no distribution here",
    FinishReason.INVALID: "not answered: its prompt, limit or sampling values are impossible",
}


def metrics_table(runs: Mapping[str, Mapping[str, Any]], title: str | None = None) -> Table:
    """One column for each run, one line for each metric."""
    table = Table("", title=title, title_justify="left")
    for label in runs:
        table.add_column(label, justify="right")
    for name in dict.fromkeys(name for run in runs.values() for name in run):
        table.add_row(name, *(_cell(run.get(name)) for run in runs.values()))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(_cell(member) for member in value) or "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)

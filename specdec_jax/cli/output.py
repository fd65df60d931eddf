"""Answers as JSON lines and as text, and the metrics of a run."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..models import Tokenizer
from ..state import FinishReason, summary
from .engine import Answer


def text_of(answer: Answer, tokenizer: Tokenizer | None) -> str:
    """The new text without its end token; the ids themselves where there is no tokenizer."""
    ids = answer.token_ids
    if tokenizer is None:
        return " ".join(map(str, ids))
    return tokenizer.decode(ids[:-1] if answer.finish_reason == FinishReason.END_TOKEN else ids)


def metrics(answers: Sequence[Answer]) -> dict[str, Any]:
    """The metrics over all these answers; None where nothing was counted."""
    stats = jax.tree.map(lambda *rows: jnp.asarray(np.concatenate(rows)), *(answer.stats for answer in answers))
    tokens = jnp.asarray([len(answer.token_ids) for answer in answers])
    seconds = sum(answer.seconds for answer in answers)
    speed = float(tokens.sum()) / seconds if seconds else math.nan
    found = {"tokens": int(tokens.sum()), **summary(stats, tokens), "tokens_per_second": speed}
    return {name: _known(value) for name, value in found.items()}


def _known(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, list):
        return [_known(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def record(answer: Answer, tokenizer: Tokenizer | None, *, logprobs: bool) -> dict[str, Any]:
    """An answer as it stands in a line of JSON."""
    prompt = answer.request.prompt
    stats = metrics([answer])
    del stats["tokens_per_second"]  # of the batch, not of a row
    fields: dict[str, Any] = {"id": answer.request.index if prompt.id is None else prompt.id}
    if prompt.category is not None:
        fields["category"] = prompt.category
    fields |= {
        "text": None if tokenizer is None else text_of(answer, tokenizer),
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason.name.lower(),
    }
    if logprobs:
        fields["logprobs"] = {"raw": _known(answer.logprobs), "sampled": _known(answer.sampled_logprobs)}
    return fields | {"stats": stats}


def line(fields: Mapping[str, Any]) -> str:
    """One object as a line of JSON."""
    return json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n"


def heading(answer: Answer) -> str:
    """How an answer is announced: its id, or the prompt's place."""
    prompt = answer.request.prompt
    label = prompt.where if prompt.id is None else str(prompt.id)
    return label if prompt.category is None else f"{label} ({prompt.category})"


def print_answer(answer: Answer, tokenizer: Tokenizer | None, console: Console, *, under: str = "") -> None:
    """An answer for people, ``under`` a line of its own if there is one."""
    console.rule(Text(heading(answer), style="bold"), align="left")
    if under:
        console.print(under + "\n", markup=False, style="dim", soft_wrap=True)
    console.print(text_of(answer, tokenizer), markup=False, highlight=False, soft_wrap=True)
    console.print()


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

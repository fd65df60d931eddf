"""The figures of `measure` for people, as tables."""

import math
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table


def report(found: dict[str, Any], console: Console) -> None:
    """Print them."""
    console.print(
        f"{found['target']} drafted for by {found['draft']}: {found['prompts']} prompts, up to "
        f"{found['max_new_tokens']} new tokens, {found['repeats']} repeats\n"
    )
    for one in found["batches"]:
        console.print(Group(_contest(one), _acceptance(one), _summary(one)), "")
    console.print(_rounds(found["round"]))
    if "startup" in found:
        console.print(_startup(found["startup"]))
    console.print(
        "Spread: the fastest repeat less the slowest, in shares of the median. Roofline: the share of the time, "
        "reading prompts left out, that the bytes to be read would take. Same: tokens that are the first one's.\n"
        f"Memory is read at {found['bandwidth'] / 1e9:.1f} GB/s by a plain sum over as many bytes as the weights, "
        f"{_mib(found['weight_bytes'])}.\n"
        f"A second call with other values traced {found['second_call_traces']} passes.\n"
    )


def _contest(one: dict[str, Any]) -> Table:
    table = _table(f"batch size {one['batch']}", "tokens/s", "spread", "speedup", "roofline", "same")
    for name, entry in one["contestants"].items():
        table.add_row(
            name,
            f"{entry['tokens_per_second']:.2f}",
            f"{(entry['fastest'] - entry['slowest']) / entry['tokens_per_second']:.0%}",
            f"{entry['speedup']:.2f}",
            _number(entry.get("roofline", math.nan), ".0%"),
            f"{entry['equal']:.1%}",
        )
    return table


def _acceptance(one: dict[str, Any]) -> Table:
    table = _table("", "acceptance_rate", "block_efficiency", "accepted_at")
    for name, entry in one["contestants"].items():
        if "accepted_at" in entry:
            table.add_row(
                name,
                _number(entry["acceptance_rate"]),
                _number(entry["block_efficiency"]),
                " ".join(map(_number, entry["accepted_at"])),
            )
    return table


def _summary(one: dict[str, Any]) -> RenderableType:
    used = one["memory"]
    against = ", ".join(f"{ratio:.2f} of {name}" for name, ratio in one["adaptive_against"].items())
    return (
        f"Adaptive, by {one['costs']} costs: {against}.\n"
        f"Memory, adaptive: {_mib(used['peak_bytes'])} at most, {_mib(used['cache_bytes'])} of them the target's "
        f"cache; {used['cache_copies']} copies of an array as large as the cache's."
    )


def _rounds(costs: dict[str, Any]) -> Table:
    table = _table("a round at batch size 1, in milliseconds", "round", "verify", "draft", "round / passes")
    for name, cost in costs.items():
        parts = [f"{1e3 * cost[part]:.1f}" for part in ("round_seconds", "verify_seconds", "draft_seconds")]
        table.add_row(name, *parts, f"{cost['ratio']:.3f}")
    return table


def _startup(found: dict[str, Any]) -> Table:
    table = _table("start-up of specdec generate, in seconds", "import", "load", "compile", "answer")
    for name, told in (("nothing compiled yet", "cold"), ("programs kept", "warm")):
        one = found[told]
        parts = (f"{one[f'{part}_seconds']:.1f}" for part in ("import", "load", "compile", "answer"))
        table.add_row(name, *parts)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table("", title=title or None, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _number(value: float, form: str = ".2f") -> str:
    return "-" if math.isnan(value) else format(value, form)


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"

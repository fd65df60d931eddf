"""What a run leaves for people: its curves as a picture, and a card that says how the drafter was made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def curves(log: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Loss of training and acceptance on held-out text over tokens, as a picture whose name ends in .svg or .png."""
    from matplotlib.figure import Figure  # half a second that nobody else should wait for

    seen, loss, measured = 0, [], []
    for line in log:
        if "held_out" in line:
            measured.append((seen, line["held_out"]))
        else:
            seen += line["tokens"]
            loss.append((seen, line["loss"]))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(*zip(*loss, strict=True), linewidth=1, label="training")
    left.plot([at for at, _ in measured], [_mean(one["loss"]) for _, one in measured], "o-", label="held out, mean")
    left.set(xlabel="tokens learned from", ylabel="loss", yscale="log")
    left.legend(frameon=False)
    for guess in range(len(measured[0][1]["alpha"])):
        values = [one["alpha"][guess] for _, one in measured]
        right.plot([at for at, _ in measured], values, "o-", label=f"guess {guess + 1}")
    right.set(xlabel="tokens learned from", ylabel="acceptance on held-out text", ylim=(0, None))
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(path)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def card(record: Mapping[str, Any]) -> str:
    """The text of a README.md, from what a run wrote down.

    ``record`` has ``name``, ``kind``, ``target``, ``held_out``, ``settings``, ``tokens``, ``source`` and, once it was
    measured, ``measured``: what `evaluate.in_generation` gives, one entry a temperature.
    """
    held_out = record["held_out"]
    alphas = ", ".join(f"{alpha:.3f}" for alpha in held_out["alpha"])
    lines = [
        f"# {record['name']}",
        "",
        f"A {record['kind']} that drafts for {record['target']}, made by `specdec distill`. It changes no probability "
        "of the target's text; it only makes it come sooner.",
        "",
        "    " + f"specdec generate --target {record['target']} --draft {record['name']} ...",
        "",
        "## What it reaches",
        "",
        f"On held-out text, after {held_out['step']} updates: acceptance {alphas}"
        # A draft model is measured on its first guess only.
        + (
            f" for the guesses in turn, which makes {held_out['block_efficiency']:.2f} tokens a round."
            if len(held_out["alpha"]) > 1
            else " for the first guess."
        ),
    ]
    if "cost" in record:
        cost = record["cost"]
        lines += [
            "",
            f"A guess costs {cost['draft_step']:.3f} of a step of the target, and checking all of them "
            f"{cost['verify']:.2f} steps, which with these acceptances predicts {record['predicted_speedup']:.2f} "
            "times plain decoding at temperature 1.",
        ]
    before = record.get("measured_before", [None] * len(record.get("measured", ())))
    for found, earlier in zip(record.get("measured", ()), before, strict=True):
        lines += ["", *_measured(found, earlier)]
    lines += [
        "",
        "## How it was made",
        "",
        f"Learned from {record['tokens']:,} tokens of answers, from {record['source']}.",
        "",
        "```json",
    ]
    lines += [_indented(record["settings"]), "```", ""]
    return "\n".join(lines)


def _measured(found: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    how = "greedily" if found["temperature"] == 0 else f"at temperature {found['temperature']}"
    lines = [
        f"In generation {how}, {found['questions']} questions, {found['max_new_tokens']} new tokens, K = "
        f"{found['draft_length']}, batch 1: block efficiency {found['block_efficiency']:.2f}, "
        f"{found['speedup']:.2f} times as fast as without it in the same run."
        + (
            "" if before is None else f" Before training: {before['block_efficiency']:.2f} and {before['speedup']:.2f}."
        ),
        "",
        "| category | block efficiency | acceptance |",
        "|---|---|---|",
    ]
    for category, one in found["by_category"].items():
        lines.append(f"| {category} | {one['block_efficiency']:.2f} | {one['acceptance_rate']:.2f} |")
    return lines


def _indented(value: Any) -> str:
    return json.dumps(value, indent=2)

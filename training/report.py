"""What a run leaves for people: its curves as a picture, and a card that says how the drafter was made."""

import json
import shlex
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
    left.plot([at for at, _ in loss], [one for _, one in loss], linewidth=1, label="training")
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

    ``record`` has ``name``, ``kind``, ``target`` and ``directory`` (what ``--target`` and ``--draft`` take, as they
    were given), ``model`` (the target's name), ``held_out``, ``held_out_before`` where it is known, ``from_target``,
    ``temperatures`` (that the target wrote the text at, where it is known), ``settings``, ``tokens``, ``source`` and,
    once they were measured, ``cost``, ``predicted_speedup`` and ``measured``, with ``..._before`` of the drafter that
    it began as: what `evaluate` gives.
    """
    before = record.get("held_out_before")
    lines = [
        f"# {record['name']}",
        "",
        f"A {record['kind']} that drafts for {record['model']}, made by `specdec distill`. It changes no probability "
        "of the target's text; it only makes it come sooner.",
        "",
        f'    specdec generate "Dear reader," --target {shlex.quote(record["target"])} --draft '
        f"{shlex.quote(record['directory'])}",
        "",
        "## What it reaches",
        "",
        f"On held-out text, after {record['held_out']['step']} updates: {_acceptance(record['held_out'])}"
        + (f" Before training: {_acceptance(before)}" if before else ""),
    ]
    if record.get("stored", "float32") != "float32":
        lines[-1] += (
            f" These are of its parameters in float32, as they are trained; they are stored in {record['stored']}."
        )
    if not record["from_target"]:
        lines += [
            "",
            "That text is from a file and not the target's own, so these are acceptances on the file's text: on what "
            "the target says itself they may be others, and no speed-up is predicted from them.",
        ]
    if "cost" in record:
        lines += ["", _cost(record)]
    measured_before = record.get("measured_before", [None] * len(record.get("measured", ())))
    for found, earlier in zip(record.get("measured", ()), measured_before, strict=True):
        lines += ["", *_measured(found, earlier)]
    if "measured" in record and "predicted_speedup" in record:
        lines += ["", *_beside(record)]
    lines += [
        "",
        "## How it was made",
        "",
        f"Learned from {record['tokens']:,} tokens of {record['source']}.",
        "",
        "```json",
    ]
    lines += [_indented(record["settings"]), "```", ""]
    return "\n".join(lines)


def _acceptance(held_out: Mapping[str, Any]) -> str:
    alphas = ", ".join(f"{alpha:.3f}" for alpha in held_out["alpha"])
    if len(held_out["alpha"]) == 1:  # a draft model is measured on its first guess only
        return f"acceptance {alphas} for the first guess."
    return (
        f"acceptance {alphas} for the guesses in turn, which makes {held_out['block_efficiency']:.2f} tokens a round "
        "if they are kept independently of each other."
    )


def _cost(record: Mapping[str, Any]) -> str:
    cost, predicted = record["cost"], record.get("predicted_speedup")
    text = (
        f"A guess costs {cost['draft_step']:.3f} of a step of the target, and checking all of them "
        f"{cost['verify']:.2f} steps"
    )
    if predicted is None:
        return text + "."
    text += f", which with these acceptances predicts {predicted:.2f} times plain decoding."
    before = record.get("predicted_speedup_before")
    if before is not None:
        text += f" Before training: {before:.2f}."
    # Alpha compares the two at temperature 1, whatever the tokens before were drawn at.
    written = " and ".join(f"{one:g}" for one in record.get("temperatures", ()))
    return (
        f"{text} That is of drawing at temperature 1 in the places of the held-out text, which the target wrote"
        + (f" at temperature {written}" if written else "")
        + ": greedily, or in answers to other questions, it is another."
    )


def _beside(record: Mapping[str, Any]) -> list[str]:
    """Predicted and measured speeds in one table."""
    ways = [_how(found) for found in record["measured"]]
    lines = [
        f"| times plain decoding | predicted from held-out text | {' | '.join(f'measured {way}' for way in ways)} |",
        "|---|---|" + "---|" * len(ways),
    ]
    for name, when in (("before training", "_before"), ("after", "")):
        predicted, measured = record.get("predicted_speedup" + when), record.get("measured" + when)
        if measured is not None:
            shown = [
                "" if predicted is None else f"{predicted:.2f}",
                *(f"{found['speedup']:.2f}" for found in measured),
            ]
            lines.append(f"| {name} | {' | '.join(shown)} |")
    return lines


def _how(found: Mapping[str, Any]) -> str:
    return "greedily" if found["temperature"] == 0 else f"at temperature {found['temperature']}"


def _measured(found: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    lines = [
        f"In generation {_how(found)}, {found['questions']} questions, {found['max_new_tokens']} new tokens, K = "
        f"{found['draft_length']}, batch 1: block efficiency {_ratio(found['block_efficiency'])}, "
        f"{found['speedup']:.2f} times as fast as without it in the same run."
        + (
            ""
            if before is None
            else f" Before training: {_ratio(before['block_efficiency'])} and {before['speedup']:.2f}."
        ),
        "",
        "| category | block efficiency | acceptance |",
        "|---|---|---|",
    ]
    for category, one in found["by_category"].items():
        lines.append(f"| {category} | {_ratio(one['block_efficiency'])} | {_ratio(one['acceptance_rate'])} |")
    return lines


def _ratio(value: float | None) -> str:
    """None is that of nothing to nothing, as where no answer had room for a guess."""
    return "none" if value is None else f"{value:.2f}"


def _indented(value: Any) -> str:
    return json.dumps(value, indent=2)

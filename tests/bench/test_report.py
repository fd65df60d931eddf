"""Tables and picture of figures that are made up."""

import io
import math
from typing import Any

import numpy as np
from rich.console import Console

from specdec_jax.bench.picture import picture
from specdec_jax.bench.report import report


def entry(speed: float, **more) -> dict:
    return {
        "tokens_per_second": speed,
        "slowest": 0.9 * speed,
        "fastest": 1.2 * speed,
        "speedup": speed / 20,
        "equal": 0.995,
        **more,
    }


def contest(batch: int, **others: dict) -> dict:
    guesses = {"acceptance_rate": 0.5, "block_efficiency": 2.5, "accepted_at": [0.75, 0.25]}
    return {
        "batch": batch,
        "costs": "measured",
        "contestants": {
            **others,
            "plain": entry(20.0, roofline=0.625),
            "fixed 3": entry(30.0, roofline=0.5, **guesses),
            "adaptive": entry(40.0, roofline=0.5, **guesses | {"accepted_at": [0.75, math.nan]}),
        },
        "adaptive_against": {"plain": 2.0, "best fixed": 4 / 3},
        "memory": {"peak_bytes": 3 * 2**20, "cache_bytes": 2**20, "cache_copies": 1},
    }


FOUND = {
    "target": "large",
    "draft": "small",
    "prompts": 6,
    "max_new_tokens": 64,
    "repeats": 3,
    "draft_length": 2,
    "bandwidth": 2e10,
    "weight_bytes": 5 * 2**20,
    "batches": [contest(1, transformers=entry(10.0)), contest(8)],
    "round": {"plain": {"round_seconds": 0.05, "verify_seconds": 0.04, "draft_seconds": 0.0, "ratio": 1.25}},
    "second_call_traces": 0,
    "startup": {
        told: {"import_seconds": 1.0, "load_seconds": 2.0, "compile_seconds": compiling, "answer_seconds": 0.25}
        for told, compiling in (("cold", 30.0), ("warm", 3.0))
    },
}


def test_tables():
    console = Console(width=80, record=True, file=io.StringIO())
    report(FOUND, console)
    text = console.export_text()
    lines = [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]
    for line in (
        "┃ ┃ tokens/s ┃ spread ┃ speedup ┃ roofline ┃ same ┃",
        "transformers 10.00 30% 0.50 - 99.5%",
        "adaptive 40.00 30% 2.00 50% 99.5%",
        "adaptive 0.50 2.50 0.75 -",
        "Adaptive, by measured costs: 2.00 of plain, 1.33 of best fixed.",
        "plain 50.0 40.0 0.0 1.250",
        "nothing compiled yet 1.0 2.0 30.0 0.2",
        "programs kept 1.0 2.0 3.0 0.2",
    ):
        assert line in lines
    assert any("Memory is read at 20.0 GB/s" in line for line in lines)


def test_picture():
    figure = picture(FOUND)
    speeds, kept = figure.axes
    bars: list[Any] = speeds.containers
    lines = {one.get_label(): one.lines[0] for one in bars}
    assert list(lines) == ["transformers", "plain", "fixed 3", "adaptive"]
    assert lines["adaptive"].get_xydata().tolist() == [[1, 40], [8, 40]]
    assert lines["transformers"].get_xydata().tolist() == [[1, 10]]
    np.testing.assert_array_equal([line.get_ydata() for line in kept.lines], [[0.75, 0.25]] * 2)

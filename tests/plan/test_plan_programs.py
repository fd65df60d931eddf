"""What is compiled is what the slots of a job would run, to the last letter of the lowered programs."""

import json
from pathlib import Path

import pytest

from scripts import ON_EIGHT_DEVICES, printed_by

HERE = Path(__file__).parent
CASES = [
    {"data": data, "draft": draft, "controller": controller, "prompt": prompt, "config": config}
    for data, draft, controller, prompt, config in [
        (2, "cut", "constant", 20, {"capacity": 96, "draft_length": 3}),
        (2, "cut", "throughput", 20, {"capacity": 96, "draft_length": 3}),
        (4, "whole", "throughput", 150, {"capacity": 200, "draft_length": 8, "rule": "coupled", "prefill_chunk": 128}),
        (8, "none", "constant", 70, {"capacity": 96, "rule": "greedy"}),
    ]
]


@pytest.mark.heavy
def test_the_programs_are_those_of_a_job():
    found = printed_by(HERE / "lowered_on_eight_devices.py", json.dumps(CASES), **ON_EIGHT_DEVICES)
    for line, case in zip(found, CASES, strict=True):
        assert line["same"] == [True] * 3, case
    assert len({line["text"] for line in found}) == len(CASES)  # the controller is part of the program

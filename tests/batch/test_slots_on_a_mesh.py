"""Slots on a mesh: each group of devices has its own, and the answers are those of one device."""

import json
from pathlib import Path

import pytest

from scripts import ON_EIGHT_DEVICES, printed_by

HERE = Path(__file__).parent


@pytest.mark.heavy
def test_every_mesh_gives_the_answers_of_one_device():
    cases = [("llama", 8, 1), ("llama", 4, 2), ("llama", 2, 4), ("llama", 1, 8), ("gemma3", 2, 4), ("gpt2", 4, 2)]
    lines = printed_by(HERE / "slots_on_eight_devices.py", json.dumps(cases), **ON_EIGHT_DEVICES)
    for line, (family, data, tensor) in zip(lines, cases, strict=True):
        assert line["case"] == [family, data, tensor]
        assert line["same"], line
        assert line["compiled"] == 0, line
        assert 20 < line["accepted"] < line["tokens"]
        # Within a group alone, and the sums of a product that is cut: "" is a single group.
        groups = f"[{data},{tensor}]<=[8]" if data > 1 else ""
        wanted = [["all-reduce", groups]] * (tensor > 1)
        assert line["insert"] == wanted, line
        assert line["decode"] == wanted, line

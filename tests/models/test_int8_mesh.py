"""Models in int8 on meshes: each device reads and rounds its own part, and they say what one device says."""

import json
from pathlib import Path

import pytest

from scripts import ON_EIGHT_DEVICES, printed_by

HERE = Path(__file__).parent


@pytest.mark.heavy
def test_every_mesh_gives_the_tokens_of_one_device(tmp_path):
    shapes = [[4, 2], [1, 8]]
    lines = printed_by(HERE / "int8_on_eight_devices.py", tmp_path, json.dumps(shapes), **ON_EIGHT_DEVICES)
    for line, (_, tensor) in zip(lines, shapes, strict=True):
        assert line["same"], line
        assert line["accepted"] > 0
        assert line["stored"], "a checkpoint is read into other numbers or places than its directory"
        # The same states, and rows of the embedding in int8.
        assert {kind for kind, _ in line["exchanged"]} == {"all-reduce"}
        bytes_of, usual = (sorted(size for _, size in line[name]) for name in ("exchanged", "of_floats"))
        assert sum(bytes_of) <= sum(usual), line
        assert bytes_of[-1] <= usual[-1], line
        # Of [L, G, R + 2, H, D] and its scale the groups are cut; of [L, D, F] the F, over which is summed.
        assert line["cut"] == [[1, 8 // tensor, 4, 8, 32], [1, 8 // tensor, 4, 8], [1, 32, 64 // tensor], [1, 32]]

"""Slots on a mesh: each group of devices has its own, and the answers are those of one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

HERE = Path(__file__).parent


@pytest.mark.heavy
def test_every_mesh_gives_the_answers_of_one_device():
    cases = [("llama", 8, 1), ("llama", 4, 2), ("llama", 2, 4), ("llama", 1, 8), ("gemma3", 2, 4), ("gpt2", 4, 2)]
    tests = HERE.parent
    settings = {
        "PYTHONPATH": os.pathsep.join(map(str, (tests.parent, tests, tests / "models"))),
        "JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"],
        "JAX_NUM_CPU_DEVICES": "8",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, HERE / "slots_on_eight_devices.py", json.dumps(cases)]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for line, (family, data, tensor) in zip(map(json.loads, done.stdout.splitlines()), cases, strict=True):
        assert line["case"] == [family, data, tensor]
        assert line["same"], line
        assert line["compiled"] == 0, line
        assert 20 < line["accepted"] < line["tokens"]
        # Within a group alone, and the sums of a product that is cut: "" is a single group.
        groups = f"[{data},{tensor}]<=[8]" if data > 1 else ""
        wanted = [["all-reduce", groups]] * (tensor > 1)
        assert line["insert"] == wanted, line
        assert line["decode"] == wanted, line

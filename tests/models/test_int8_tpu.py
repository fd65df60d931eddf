"""What a TPU would read of a model in int8: int8."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("libtpu", reason="compiling for a TPU needs the extra plan")
    settings = {"PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path]), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, HERE / "int8_for_v5e.py"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.heavy
def test_converted_weights_are_never_written_out(found):
    """Neither in front of a loop nor inside: what a product reads from memory is int8."""
    assert [line["layers"] for line in found] == ["stacked", "unrolled"]
    for line in found:
        assert line["written"] == [], line
        assert line["arguments"] < 0.52 * line["floats"], line

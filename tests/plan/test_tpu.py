"""The loop of rounds as a TPU v5e slice of 16 chips would run it, two groups of eight: compiled here without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS, K = 32, 3
"""Rows of a group of devices, and guesses."""


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("libtpu", reason="compiling for a TPU needs the extra plan")
    settings = {"PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path]), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, HERE / "compile_for_v5e.py"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.heavy
def test_groups_of_devices_exchange_nothing_with_each_other(found):
    assert found["groups"] == ["[2,8]<=[16]"]  # chips 0 to 7, and 8 to 15
    assert found["kinds"] == ["all-reduce"]


@pytest.mark.heavy
def test_nothing_of_the_size_of_the_vocabulary_is_exchanged(found):
    """A device has 512 of 4,096 tokens' logits. Beside states of model width it sends at most one group of a draw."""
    assert found["largest_other"] <= 128 * 4


@pytest.mark.heavy
def test_states_are_exchanged_as_often_as_tensor_parallelism_needs(found):
    """Twice a layer, and once for the embedding, which is cut by its vocabulary."""
    embedding = 2 * ROWS * ((K + 1) * 1024 + (2 + K - 1) * 512)
    states = found["least_bytes"] + embedding
    assert 0 <= found["bytes"] - states < 0.15 * found["least_bytes"]  # rows' own numbers: less, the larger a model


@pytest.mark.heavy
def test_caches_are_cut_by_rows_and_heads_and_never_copied(found):
    assert found["caches"] == [[2, ROWS, 2, 520, 128]] * 2 + [[1, ROWS, 1, 520, 64]] * 2
    assert found["copies"] == 0
    whole = 2 * 2 * ROWS * 2 * 520 * 128 * 2
    turned = 2 * ROWS * 520 * 128 * 2  # of the drafter, before the first round and after the last: its heads are narrow
    assert found["temporary"] < whole / 2 + turned + 2**20

"""Scripts that tests run in a process of its own, for devices or a cache of programs that theirs does not have."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

ON_EIGHT_DEVICES = {"JAX_NUM_CPU_DEVICES": "8"}


def printed_by(script: Path, *args: object, **settings: str) -> list[Any]:
    """What it prints, in JSON, a value a line. It imports what this process can, and runs on the CPU."""
    tests = Path(__file__).parent
    places = (tests.parent, tests, tests / "models", *sys.path)
    usual = {"PYTHONPATH": os.pathsep.join(map(str, places)), "JAX_PLATFORMS": "cpu"}
    if kept := jax.config.values["jax_compilation_cache_dir"]:
        usual["JAX_COMPILATION_CACHE_DIR"] = kept
    command = [sys.executable, script, *map(str, args)]
    done = subprocess.run(command, env=os.environ | usual | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]

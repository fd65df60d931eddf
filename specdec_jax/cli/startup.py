"""How long ``specdec generate`` takes until it answers, in processes that know nothing yet.

Two of them, one after the other: the first finds no compiled programs, the second those that the first has kept, as the
second run of a command does.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from . import UserError


class StartUp(NamedTuple):
    """Seconds of one process."""

    import_seconds: float
    """Until Python runs and the package is imported."""
    load_seconds: float
    """Until both models are."""
    compile_seconds: float
    """For the programs, traced and compiled, or read where they were kept: what the first answer takes more than the
    same one again."""
    answer_seconds: float
    """For an answer of one token, the second time."""


def measure(
    target: str, draft: str, *, target_weights: str, draft_weights: str, capacity: int, draft_length: int
) -> dict[str, StartUp]:
    """Of a ``cold`` start, with nothing compiled, and a ``warm`` one, at batch 1.

    Call it before this process uses its devices, which two processes may not be able to share.

    Raises:
        UserError: such a process fails, as it does where a model is missing.
    """
    asked = json.dumps([target, draft, target_weights, draft_weights, capacity, draft_length])
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "JAX_COMPILATION_CACHE_DIR": folder}
        return {name: _of_a_process(asked, settings) for name in ("cold", "warm")}


def _of_a_process(asked: str, settings: dict[str, str]) -> StartUp:
    command = [sys.executable, "-m", __name__, repr(time.time()), asked]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise UserError(f"the start-up cannot be measured ({why}); leave it out with --no-startup")
    return StartUp(*json.loads(done.stdout.splitlines()[-1]))


def main(began: float, asked: list[Any]) -> StartUp:
    """What such a process does, which was started at the time ``began``."""
    from ..batch import Request
    from ..state import GenerateConfig
    from . import controllers, drafting, engine

    target, draft, target_weights, draft_weights, capacity, draft_length = asked
    imported = time.time()
    loaded = drafting.load_target(target, draft, weights=target_weights)
    made = drafting.make(draft, loaded, weights=draft_weights)
    config = GenerateConfig(capacity=capacity, draft_length=draft_length)
    ask = engine.generator(made, config, batch=1, seed=0, controller=controllers.made("adaptive"))
    ready = time.time()

    def answer() -> float:
        started = time.perf_counter()
        list(engine.one_at_a_time(ask, [Request(0, [0], max_new_tokens=1)]))
        return time.perf_counter() - started

    first, second = answer(), answer()
    return StartUp(imported - began, ready - imported, first - second, second)


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]), json.loads(sys.argv[2]))))

"""`specdec` in processes of its own. They are forked from one that has imported everything and touched no device."""

import contextlib
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_FORKS: Any = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["processes", "specdec_jax.cli.generate"])


def start(args: Sequence[str], log: Path, cache: Path, *, slowly: bool = False) -> BaseProcess:
    """Run ``specdec``; ``slowly`` lets the system take a few bytes in a call, so that a kill may tear a line."""
    process = _FORKS.Process(target=_run, args=(list(args), log, cache, slowly))
    process.start()
    return process


def _run(args: list[str], log: Path, cache: Path, slowly: bool) -> None:
    import jax

    from specdec_jax.cli import main

    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    with log.open("a", buffering=1) as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(file):
        if slowly:
            real = os.write
            os.write = lambda fd, data: real(fd, data[: random.randint(1, 60)])
        sys.exit(main(args))


def kill_once_it_wrote(process: BaseProcess, path: Path, count: int) -> None:
    """SIGKILL when the file has grown by so many bytes, unless the process ended before."""

    def size() -> int:
        return path.stat().st_size if path.exists() else 0

    wanted = size() + count
    while process.is_alive() and size() < wanted:
        time.sleep(0.0005)
    process.kill()
    process.join()

"""Processes of a test's own, to be killed: forked from one that has imported everything and touched no device."""

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_FORKS: Any = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["processes", "specdec_jax.cli.generate"])


def start(function: Callable[..., Any], *args: Any, cache: Path, log: Path) -> BaseProcess:
    """Call a module's function; what it returns is the exit status. Compiled programs are kept in ``cache``."""
    process = _FORKS.Process(target=_run, args=(function, args, cache, log))
    process.start()
    return process


def status(process: BaseProcess) -> int | None:
    """Wait for its end; the exit status, or the negative signal that ended it."""
    process.join()
    return process.exitcode


def _run(function: Callable[..., Any], args: tuple[Any, ...], cache: Path, log: Path) -> None:
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    with log.open("a", buffering=1) as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
        sys.exit(function(*args))


def write_slowly() -> None:
    """From now on the system takes a few bytes in a call, as it may, so that a kill can tear a line."""
    real = os.write

    def write(fd: int, data) -> int:
        time.sleep(0.001)
        return real(fd, data[: random.randint(1, 400)])

    os.write = write


def kill_once_it_wrote(process: BaseProcess, path: Path, count: int) -> None:
    """SIGKILL when the file has grown by so many bytes, unless the process ended before."""

    def size() -> int:
        return path.stat().st_size if path.exists() else 0

    wanted = size() + count
    while process.is_alive() and size() < wanted:
        time.sleep(0.0005)
    process.kill()
    process.join()

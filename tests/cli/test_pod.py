"""A job of two processes that run one program together, on a mesh over the devices of both."""

import socket
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import jax
import pytest
from processes import kill_once_it_wrote, start, status
from programs import quick_batch
from test_hosts import COUNT, SMALL, answers, write_prompts

from specdec_jax.cli import main

pytestmark = pytest.mark.heavy

DEVICES, PROCESSES = 4, 2


def on_its_devices(args: list[str]) -> int:
    """The command in a process with some CPU devices."""
    quick_batch(pytest.MonkeyPatch())
    jax.config.update("jax_num_cpu_devices", DEVICES)
    return main(args)


@pytest.fixture
def begin(tiny, tmp_path):
    """Starts processes that write into an output each of their own."""
    prompts = write_prompts(tmp_path / "prompts.jsonl", COUNT)

    def begin(outputs: list[Path], *args: str):
        command = ["generate", "--target", str(tiny), "--prompt-file", str(prompts), *SMALL, *args]
        command += ["--verify-widths", "4"]  # one pass to compile
        if len(outputs) > 1:
            with socket.socket() as free:
                free.bind(("localhost", 0))
                port = free.getsockname()[1]
            command += ["--scope", "pod", "--coordinator", f"localhost:{port}", "--processes", str(len(outputs))]
        numbers = [["--process", str(process)] * (len(outputs) > 1) for process in range(len(outputs))]
        return [
            start(
                on_its_devices,
                [*command, "--output", str(output), *number],
                cache=tmp_path / "cache",
                log=tmp_path / "log.txt",
            )
            for output, number in zip(outputs, numbers, strict=True)
        ]

    return begin


def wait_for(path: Path, size: int, process: BaseProcess) -> None:
    """Until the process has written so many bytes."""
    while process.is_alive() and not (path.exists() and path.stat().st_size > size):
        time.sleep(0.001)


def test_a_pod_that_was_stopped_goes_on_where_it_was(begin, tmp_path):
    """Each process has a folder of its own, as on hosts that share none; the last run cuts the model otherwise."""
    alone = tmp_path / "alone"
    assert [status(process) for process in begin([alone])] == [0]
    folders = [tmp_path / "first", tmp_path / "second"]

    asked = begin(folders, "--tensor", "2")
    wait_for(folders[1] / "answers-00002-of-00002.jsonl", 1000, asked[1])
    asked[1].terminate()
    assert [status(process) for process in asked] == [3, 3], "SIGTERM to one stops both"
    before = sum(len(answers(folder)) for folder in folders)

    killed = begin(folders, "--tensor", "2")
    kill_once_it_wrote(killed[1], folders[1] / "answers-00002-of-00002.jsonl", 1000)
    killed[0].kill()
    assert [status(process) for process in killed] == [-9, -9]

    assert [status(process) for process in begin(folders, "--tensor", "8")] == [0, 0]
    first, second = map(answers, folders)
    assert 0 < before < COUNT
    assert first | second == answers(alone)
    assert sorted(first) == [*range(0, COUNT, PROCESSES)]
    assert sorted(second) == [*range(1, COUNT, PROCESSES)]


def test_what_stops_one_stops_both(begin, tmp_path):
    folders = [tmp_path / "first", tmp_path / "file"]
    folders[1].write_text("in the way")
    assert [status(process) for process in begin(folders, "--tensor", "2")] == [2, 2]
    log = (tmp_path / "log.txt").read_text()
    assert f"cannot make the folder {folders[1]}" in log
    assert "another process of this job cannot go on; see what it says" in log
    assert not answers(folders[0])

"""A job of several processes that run one program together, on a mesh over the devices of all."""

import socket
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import jax
import pytest
from processes import kill_once_it_wrote, start, status
from programs import quick_batch
from test_hosts import COUNT, SMALL, answers, write_prompts

from specdec_jax.cli import main

pytestmark = pytest.mark.heavy

DEVICES, PROCESSES = 8, 2


def on_devices(count: int, args: list[str]) -> int:
    """The command in a process with so many CPU devices."""
    quick_batch(pytest.MonkeyPatch())
    jax.config.update("jax_num_cpu_devices", count)
    # Where no exchange fails at once, the dead are noticed by their heartbeat: by default after 100 seconds.
    jax.distributed.initialize = partial(jax.distributed.initialize, heartbeat_timeout_seconds=10)
    return main(args)


@pytest.fixture
def begin(tiny, tmp_path):
    """Starts processes with so many devices between them, which write into an output each of their own."""

    def begin(outputs: list[Path], *args: str, count: int = COUNT, last: Sequence[str] = ()):
        """With ``last`` among the arguments of the last process alone."""
        prompts = write_prompts(tmp_path / f"{count}.jsonl", count)
        command = ["generate", "--target", str(tiny), "--prompt-file", str(prompts), *SMALL, *args]
        command += ["--verify-widths", "4"]  # one pass to compile
        if len(outputs) > 1:
            with socket.socket() as free:
                free.bind(("localhost", 0))
                port = free.getsockname()[1]
            command += ["--scope", "pod", "--coordinator", f"localhost:{port}", "--processes", str(len(outputs))]
        numbers = [["--process", str(process)] * (len(outputs) > 1) for process in range(len(outputs))]
        numbers[-1] += last
        return [
            start(
                partial(on_devices, DEVICES // len(outputs)),
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


def test_four_processes_with_uneven_shares(begin, tiny, tmp_path):
    """A draft model is whole on every device, where the target is cut."""
    alone, draft = tmp_path / "alone", ["--draft", str(tiny)]
    assert [status(process) for process in begin([alone], *draft, count=30)] == [0]
    folders = [tmp_path / str(process) for process in range(4)]
    assert [status(process) for process in begin(folders, "--tensor", "4", *draft, "--draft-whole", count=30)] == [
        0
    ] * 4
    shares = [answers(folder) for folder in folders]
    assert [len(share) for share in shares] == [8, 8, 7, 7]
    assert {index: line for share in shares for index, line in share.items()} == answers(alone)


def test_a_process_that_is_killed_takes_the_others_along(begin, tmp_path):
    """They cannot go on without its devices; what they wrote stands, and the job goes on from it."""
    folders = [tmp_path / "first", tmp_path / "second"]
    asked = begin(folders, "--tensor", "2")
    kill_once_it_wrote(asked[1], folders[1] / "answers-00002-of-00002.jsonl", 1000)
    survivor, killed = (status(process) for process in asked)
    assert killed == -9
    assert survivor not in (0, 3), "neither done nor stopped by a signal"
    assert 0 < sum(len(answers(folder)) for folder in folders) < COUNT
    assert [status(process) for process in begin(folders, "--tensor", "2")] == [0, 0]
    first, second = map(answers, folders)
    assert sorted(first | second) == [*range(COUNT)]


@pytest.mark.parametrize("what", ["weights", "places"])
def test_hosts_that_were_told_otherwise_do_not_begin(begin, tiny, other, tmp_path, what):
    """Neither shows in what they compute together: that never ends, or is a mixture."""
    folders = [tmp_path / "first", tmp_path / "second"]
    last = {"weights": ["--target", str(other("reweighed", seed=1))], "places": ["--draft-whole"]}[what]
    started = begin(folders, "--tensor", "8", "--draft", str(tiny), last=last)
    assert [status(process) for process in started] == [2, 2]
    assert "the processes of this job were not told the same" in (tmp_path / "log.txt").read_text()
    assert not answers(folders[0])


def test_what_stops_one_stops_both(begin, tmp_path):
    folders = [tmp_path / "first", tmp_path / "file"]
    folders[1].write_text("in the way")
    assert [status(process) for process in begin(folders, "--tensor", "2")] == [2, 2]
    log = (tmp_path / "log.txt").read_text()
    assert f"cannot make the folder {folders[1]}" in log
    assert "another process of this job cannot go on; see what it says" in log
    assert not answers(folders[0])

"""A job of several processes that run one program together, on a mesh over the devices of all."""

import errno
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import jax
import pytest
from processes import kill_once_it_wrote, start, status
from programs import quick_batch
from test_hosts import COUNT, SMALL, answers, write_prompts

from specdec_jax.batch import hosts, programs
from specdec_jax.cli import main, output, snapshot

pytestmark = pytest.mark.heavy

DEVICES, PROCESSES = 8, 2
EIGHT_HEADS = {"heads": 8, "kv_heads": 8}
"""Of a model that is cut wherever it can be, whatever the number of devices."""


def on_devices(count: int, before: Callable[[], None], args: list[str]) -> int:
    """The command in a process with so many CPU devices."""
    quick_batch(pytest.MonkeyPatch())
    jax.config.update("jax_num_cpu_devices", count)
    # Where no exchange fails at once, the dead are noticed by their heartbeat: by default after 100 seconds.
    jax.distributed.initialize = partial(jax.distributed.initialize, heartbeat_timeout_seconds=10)
    hosts.FAREWELL = 20  # seconds, which a run takes where one has left alone
    before()
    return main(args)


def nothing() -> None:
    """For a process like any other."""


def fill_the_disk() -> None:
    """There is room for some results, and then there is none."""
    real, room = os.write, [1500]

    def write(fd: int, data) -> int:
        if not Path(f"/proc/self/fd/{fd}").readlink().name.endswith(".jsonl"):
            return real(fd, data)
        room[0] -= len(data)
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    os.write = write


def fail_at_a_record() -> None:
    """What nobody expected, once some answers are there."""
    real, made = output.record, []

    def record(*args, **options):
        made.append(args)
        if len(made) > 20:
            raise RuntimeError("unexpected")
        return real(*args, **options)

    output.record = record


def change_the_prompts() -> None:
    """In the third pass over them, in which they are answered, a line is another."""
    real, sums = snapshot._sum, []

    def other(line: bytes) -> int:
        sums.append(line)
        return real(line) + (len(sums) > 2 * COUNT + 40)

    snapshot._sum = other


def fail_in_a_program() -> None:
    """The same where the others go on into a program of all, in which they wait for this one."""
    real, calls = programs.decode, []

    def decode(*args, **options):
        calls.append(args)
        if len(calls) > 3:
            raise RuntimeError("unexpected")
        return real(*args, **options)

    programs.decode = decode


@pytest.fixture(scope="module")
def target(other) -> Path:
    return other("eight-heads", **EIGHT_HEADS)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def begin(target, cache, tmp_path):
    """Starts processes with so many devices between them, which write into an output each of their own."""

    def begin(
        outputs: list[Path],
        *args: str,
        count: int = COUNT,
        last: Sequence[str] = (),
        before: Callable[[], None] = nothing,
    ):
        """With ``last`` among the arguments of the last process alone, which does something ``before``."""
        prompts = write_prompts(tmp_path / f"{count}.jsonl", count)
        command = ["generate", "--target", str(target), "--prompt-file", str(prompts), *SMALL, *args]
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
                partial(on_devices, DEVICES // len(outputs), nothing if folder != outputs[-1] else before),
                [*command, "--output", str(folder), *number],
                cache=cache,
                log=tmp_path / "log.txt",
            )
            for folder, number in zip(outputs, numbers, strict=True)
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
    assert "do not divide" not in (tmp_path / "log.txt").read_text()
    first, second = map(answers, folders)
    assert 0 < before < COUNT
    assert first | second == answers(alone)
    assert sorted(first) == [*range(0, COUNT, PROCESSES)]
    assert sorted(second) == [*range(1, COUNT, PROCESSES)]


def test_four_processes_with_uneven_shares(begin, target, tmp_path):
    """A draft model is whole on every device, where the target is cut, its heads over two processes."""
    alone, draft = tmp_path / "alone", ["--draft", str(target)]
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
def test_hosts_that_were_told_otherwise_do_not_begin(begin, target, other, tmp_path, what):
    """Neither shows in what they compute together: that never ends, or is a mixture."""
    folders = [tmp_path / "first", tmp_path / "second"]
    last = {"weights": ["--target", str(other("reweighed", seed=1, **EIGHT_HEADS))], "places": ["--draft-whole"]}[what]
    started = begin(folders, "--tensor", "8", "--draft", str(target), last=last)
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


@pytest.mark.parametrize(
    ("before", "statuses", "said"),
    [
        (fill_the_disk, [3, 3], "No space left on device; what was written before is whole"),
        (fail_at_a_record, [3, 70], "RuntimeError: unexpected"),
        (change_the_prompts, [2, 2], "is not what it was when this run began"),
    ],
)
def test_what_one_meets_on_the_way_ends_both(begin, tmp_path, before, statuses, said):
    """At once, and each by itself: one that waited for the other in vain would be ended by JAX, with a signal."""
    folders = [tmp_path / "first", tmp_path / "second"]
    assert [status(process) for process in begin(folders, "--tensor", "2", before=before)] == statuses
    log = (tmp_path / "log.txt").read_text()
    assert said in log
    assert "another process of this job cannot go on; see what it says" in log
    assert 0 < sum(len(answers(folder)) for folder in folders) < COUNT


def test_one_that_fails_in_a_program_ends_the_others(begin, tmp_path):
    """It cannot tell them, for they wait for it in that program: all are ended when it has waited for them in vain."""
    folders = [tmp_path / "first", tmp_path / "second"]
    other, failed = (status(process) for process in begin(folders, "--tensor", "8", before=fail_in_a_program))
    assert failed not in (0, 3)
    assert other not in (0, 3)
    assert "RuntimeError: unexpected" in (tmp_path / "log.txt").read_text()

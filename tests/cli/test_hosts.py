"""A job on several hosts, which are real processes here: a share each, and none waits for another."""

import json
import random
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from processes import kill_once_it_wrote, start, status

from specdec_jax.cli import main

pytestmark = pytest.mark.heavy

SMALL = ["--capacity", "40", "--draft-length", "3", "--max-new-tokens", "6", "--prefill-chunk", "128", "--batch", "8"]
COUNT = 120


def write_prompts(path: Path, count: int) -> Path:
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcdefghijklmnop", k=draw.randint(1, 20))) for _ in range(count)]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return path


def answers(folder: Path) -> dict[int, dict]:
    lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    found = {line["index"]: line for line in lines}
    assert len(found) == len(lines), "a prompt was answered twice"
    return found


@pytest.fixture(scope="module")
def begin(tiny, tmp_path_factory) -> Callable[..., BaseProcess]:
    """Starts a job of so many prompts, which are the first of all."""
    folder = tmp_path_factory.mktemp("jobs")

    def begin(count: int, output: Path, *args: str) -> BaseProcess:
        prompts = write_prompts(folder / f"{count}.jsonl", count)
        command = ["generate", "--target", str(tiny), "--prompt-file", str(prompts), "--output", str(output), *SMALL]
        return start(main, [*command, *args], cache=folder / "cache", log=folder / "log.txt")

    return begin


@pytest.fixture(scope="module")
def alone(begin, tmp_path_factory) -> dict[int, dict]:
    """The answers of one process."""
    folder = tmp_path_factory.mktemp("alone")
    assert status(begin(COUNT, folder)) == 0
    return answers(folder)


@pytest.fixture
def begin_hosts(begin) -> Callable[[int, Path, int], Sequence[BaseProcess]]:
    """Starts a job on so many hosts."""

    def begin_hosts(count: int, output: Path, processes: int) -> Sequence[BaseProcess]:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        together = ["--scope", "host", "--coordinator", f"localhost:{port}", "--processes", str(processes)]
        return [begin(count, output, *together, "--process", str(process)) for process in range(processes)]

    return begin_hosts


@pytest.mark.parametrize("processes", [2, 4])
def test_hosts_take_a_share_each(begin_hosts, alone, tmp_path, processes):
    assert [status(process) for process in begin_hosts(30, tmp_path, processes)] == [0] * processes
    assert answers(tmp_path) == {index: alone[index] for index in range(30)}
    names = [f"answers-{process + 1:05d}-of-{processes:05d}.jsonl" for process in range(processes)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "answers.manifest.json"]
    shares = [len((tmp_path / name).read_bytes().splitlines()) for name in names]
    assert shares == [-(-(30 - process) // processes) for process in range(processes)]


def test_a_host_that_is_killed_takes_no_other_along(begin, begin_hosts, alone, tmp_path):
    first, second = begin_hosts(COUNT, tmp_path, 2)
    kill_once_it_wrote(second, tmp_path / "answers-00002-of-00002.jsonl", 2000)
    share = tmp_path / "answers-00001-of-00002.jsonl"
    while first.is_alive() and len(share.read_bytes().splitlines()) < COUNT // 2:
        time.sleep(0.01)
    assert first.is_alive(), "the coordinator stays until it knows that the other is dead"
    first.kill()
    assert status(first) == -9
    assert COUNT // 2 < len(answers(tmp_path)) < COUNT
    # The next run may have another number of hosts.
    assert status(begin(COUNT, tmp_path)) == 0
    assert answers(tmp_path) == alone

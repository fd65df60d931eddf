"""Jobs in real processes: killed at any moment, on several hosts, and started again."""

import json
import random
import socket
import time
from pathlib import Path

import pytest
from processes import kill_once_it_wrote, start

pytestmark = pytest.mark.heavy

SMALL = ["--capacity", "40", "--draft-length", "3", "--max-new-tokens", "6", "--prefill-chunk", "128", "--batch", "8"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def job(tiny, write_lines, tmp_path, cache):
    """Starts a job of so many prompts."""

    def make(count: int):
        draw = random.Random(0)
        texts = [" ".join(draw.choices("abcdefghijklmnop", k=draw.randint(1, 20))) for _ in range(count)]
        path = write_lines(*({"prompt": text} for text in texts))
        command = ["generate", "--target", str(tiny), "--prompt-file", str(path), *SMALL]

        def begin(output: Path, *args: str, **options):
            return start([*command, "--output", str(output), *args], tmp_path / "log.txt", cache, **options)

        return begin

    return make


def answers(folder: Path) -> dict[int, dict]:
    lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    found = {line["index"]: line for line in lines}
    assert len(found) == len(lines), "a prompt was answered twice"
    return found


def status(process) -> int | None:
    process.join()
    return process.exitcode


def test_twenty_kills_lose_nothing(job, tmp_path):
    begin = job(500)
    assert status(begin(tmp_path / "undisturbed")) == 0
    moments = random.Random(1)
    out, torn = tmp_path / "out" / "answers.jsonl", 0
    for kill in range(20):
        # Every seventh dies before it has written, the others having written up to a sixtieth of the whole.
        count = 0 if kill % 7 == 6 else moments.randint(1, 2000)
        kill_once_it_wrote(begin(tmp_path / "out", slowly=True), out, count)
        torn += out.exists() and not out.read_bytes().endswith(b"\n")
    assert 0 < len(out.read_bytes().splitlines()) < 500, "the job was over before the last kill"
    assert torn, "no kill tore a line"
    assert status(begin(tmp_path / "out")) == 0
    assert answers(tmp_path / "out") == answers(tmp_path / "undisturbed")


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def hosts(begin, folder: Path, port: int, processes: int):
    together = ["--scope", "host", "--coordinator", f"localhost:{port}", "--processes", str(processes)]
    return [begin(folder, *together, "--process", str(process)) for process in range(processes)]


@pytest.mark.parametrize("processes", [2, 4])
def test_hosts_take_a_share_each(job, tmp_path, port, processes):
    begin = job(30)
    assert status(begin(tmp_path / "alone")) == 0
    assert [status(process) for process in hosts(begin, tmp_path / "out", port, processes)] == [0] * processes
    assert answers(tmp_path / "out") == answers(tmp_path / "alone")
    names = [f"answers-{process + 1:05d}-of-{processes:05d}.jsonl" for process in range(processes)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [*names, "answers.manifest.json"]
    shares = [len((tmp_path / "out" / name).read_bytes().splitlines()) for name in names]
    assert shares == [-(-(30 - process) // processes) for process in range(processes)]


def test_a_host_that_is_killed_takes_no_other_along(job, tmp_path, port):
    begin = job(200)
    first, second = hosts(begin, tmp_path / "out", port, 2)
    kill_once_it_wrote(second, tmp_path / "out" / "answers-00002-of-00002.jsonl", 2000)
    whole = tmp_path / "out" / "answers-00001-of-00002.jsonl"
    while first.is_alive() and len(whole.read_bytes().splitlines()) < 100:
        time.sleep(0.01)
    assert first.is_alive(), "it should wait for news of the other"
    first.kill()
    first.join()
    assert 100 < len(answers(tmp_path / "out")) < 200
    # The next run may have another number of hosts.
    assert status(begin(tmp_path / "out")) == 0
    assert status(begin(tmp_path / "alone")) == 0
    assert answers(tmp_path / "out") == answers(tmp_path / "alone")

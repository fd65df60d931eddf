"""A job that is stopped from outside, or that finds no place for what it writes, and what the next run makes of it."""

import errno
import os
import signal
import sys
from pathlib import Path

import pytest
from jobs import SMALL, TEXTS, answers
from processes import start, status

from specdec_jax.batch import Run
from specdec_jax.cli import main

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture
def after_a_stretch(monkeypatch):
    """Does something once, when the first stretch with answers is over."""

    def act(action):
        whole, actions = Run.collect, [action]

        def collect(self):
            finished = whole(self)
            if actions and finished.answers:
                actions.pop()()
            return finished

        monkeypatch.setattr(Run, "collect", collect)

    return act


@pytest.mark.parametrize("seconds", ["60", "0"])
def test_sigterm_finishes_what_runs_and_the_next_run_does_the_rest(run, out, undisturbed, after_a_stretch, seconds):
    after_a_stretch(lambda: os.kill(os.getpid(), signal.SIGTERM))
    status, err = run("--drain", seconds)
    assert status == 3
    assert "stopped before the end; the same command goes on from here" in err
    done = len(answers(out))
    assert 1 <= done <= 1 + (3 + 3 if seconds == "60" else 3)
    assert run()[0] == 0
    assert answers(out) == undisturbed


def test_a_second_sigterm_ends_it_at_once(run, after_a_stretch):
    def twice():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    after_a_stretch(twice)
    with pytest.raises(SystemExit) as stop:
        run("--drain", "1000")
    assert stop.value.code == 128 + signal.SIGTERM


def test_a_full_disk_stops_it_and_the_next_run_does_the_rest(run, out, undisturbed, monkeypatch):
    real, room = os.write, [1500]

    def write(fd, data):
        if Path(f"/proc/self/fd/{fd}").readlink() != out:
            return real(fd, data)
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = real(fd, data[: room[0]])
        room[0] -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        status, err = run()
    assert status == 3
    assert "answers.jsonl: No space left on device; what was written before is whole, so make room" in err
    assert 0 < len(answers(out)) < len(TEXTS)
    assert run()[0] == 0
    assert answers(out) == undisturbed


def unheard(args: list[str]) -> int:
    """The command with a standard error whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, sys.stderr.fileno())
    return main(args)


def test_a_job_goes_on_when_nobody_reads_its_messages(tiny, prompts, tmp_path, undisturbed):
    args = ["generate", "--target", str(tiny), "--prompt-file", str(prompts), *SMALL, "--output", str(tmp_path / "out")]
    process = start(unheard, args, cache=tmp_path / "cache", log=tmp_path / "log.txt")
    assert status(process) == 0
    assert answers(tmp_path / "out" / "answers.jsonl") == undisturbed


def test_bad_input_is_2_when_nobody_reads_why(tmp_path):
    args = ["generate", "--target", str(tmp_path / "nowhere"), "a"]
    assert status(start(unheard, args, cache=tmp_path / "cache", log=tmp_path / "log.txt")) == 2


def test_an_output_that_cannot_be_written(run, tmp_path):
    (tmp_path / "file").touch()
    status, err = run(output="file/out")
    assert status == 2
    assert "cannot make the folder" in err


@pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES])
def test_an_output_that_may_not_be_written_does_not_ask_for_the_same_again(run, monkeypatch, reason):
    def refused(*_):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "fsync", refused)
    status, err = run()
    assert status == 2
    assert f"answers.manifest.json: {os.strerror(reason)}; expected an output that can be written, so allow it" in err

"""Results on the disk: whole lines, one writer, and all that was handed over before is there."""

import contextlib
import errno
import fcntl
import os
import resource
from pathlib import Path

import pytest
from written import indices, records, write

from specdec_jax.batch import results as results_module
from specdec_jax.batch.errors import JobError, WriteError
from specdec_jax.batch.files import lines, place
from specdec_jax.batch.job import resume
from specdec_jax.batch.results import open_results


@pytest.mark.parametrize(
    ("output", "processes", "results", "manifest"),
    [
        ("out", 1, "out/answers.jsonl", "out/answers.manifest.json"),
        ("out", 4, "out/answers-00002-of-00004.jsonl", "out/answers.manifest.json"),
        ("out/x.jsonl", 1, "out/x.jsonl", "out/x.manifest.json"),
        ("gs://b/out", 4, "gs://b/out/answers-00002-of-00004.jsonl", "gs://b/out/answers.manifest.json"),
    ],
)
def test_names(output, processes, results, manifest):
    found = place(output, 1 if processes > 1 else 0, processes)
    assert (str(found.results), str(found.manifest)) == (results, manifest)


def test_only_files_of_the_job_are_its_results(here):
    names = ["answers.jsonl", "answers-00001-of-00002.jsonl", "answers-00001-of-00002.000017-0a1b2c3d.jsonl"]
    for name in [*names, "answers.manifest.json", "answers-old.jsonl", "my-answers.jsonl", "answers.jsonl.part"]:
        (here.folder / name).touch()
    assert sorted(path.name for path in here.all_results()) == sorted(names)


def test_lines_go_behind_those_of_earlier_runs(here):
    write(here, 3, 1)
    write(here, 2)
    assert indices(here) == [3, 1, 2]
    assert here.results.read_text(encoding="utf-8").splitlines()[0] == '{"index": 3, "text": "ä 3"}'


@pytest.mark.parametrize("torn", [b'{"index": 7', b"\0" * 70_000, '{"index": 7, "text": "ä'.encode()[:-1]])
def test_a_torn_line_is_cut_off(here, torn):
    write(here, 0, 1)
    whole = here.results.read_bytes()
    here.results.write_bytes(whole + torn)
    assert indices(here) == [0, 1]
    write(here, 2)
    assert here.results.read_bytes().startswith(whole)
    assert indices(here) == [0, 1, 2]


def test_the_rest_of_a_line_that_is_being_written_is_no_line(here, monkeypatch):
    """Where a file grows while it is read."""
    reads = [b'{"index": 1}\n', b'{"index": 2, "text": "a', b'b"}\n', b'{"index": 3}\n']
    monkeypatch.setattr(type(here.results), "open", lambda self, mode: contextlib.nullcontext(reads))
    assert list(lines(here.results)) == reads[:1]


def test_a_file_of_one_torn_line_is_emptied(here):
    here.results.write_bytes(b'{"index": 7')
    write(here, 2)
    assert indices(here) == [2]


def test_whoever_resumes_mends_what_a_run_with_other_processes_left(tmp_path):
    first, second = place(str(tmp_path), 0, 2), place(str(tmp_path), 1, 2)
    write(first, 0)
    write(second, 1)
    whole = second.results.read_bytes()
    second.results.write_bytes(whole + b'{"index": 3, "te')
    write(place(str(tmp_path)), 3)
    assert second.results.read_bytes() == whole


def test_hosts_that_start_at_once_do_not_take_each_other_for_an_earlier_run(tmp_path, monkeypatch):
    write(place(str(tmp_path)), 5)
    cut, looked = results_module.cut_torn_line, []

    def meanwhile(fd):
        if not looked:
            looked.append(fd)
            write(place(str(tmp_path), 1, 2), 1)  # the other host, while this one looks at the earlier run's file
        cut(fd)

    monkeypatch.setattr(results_module, "cut_torn_line", meanwhile)
    write(place(str(tmp_path), 0, 2), 0)
    assert looked
    assert sorted(indices(place(str(tmp_path)))) == [0, 1, 5]


def test_the_name_of_a_new_file_is_on_the_disk_as_well(here, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()) or real(fd))
    write(here, 0)
    assert [*map(str, synced)] == [str(here.folder), str(here.results)]


def test_write_returns_when_it_is_on_the_disk(here, monkeypatch):
    synced = []
    real = os.fsync
    with open_results(here) as results:
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size) or real(fd))
        results.append(records(0, 1))
        results.write()
        assert synced == [here.results.stat().length]


def test_a_second_process_is_refused(here):
    with open_results(here), pytest.raises(JobError, match=r"another process writes .*answers.jsonl; expected one"):
        write(here, 0)


def test_a_run_with_another_number_of_processes_is_refused_while_one_runs(tmp_path):
    one, first, second = place(str(tmp_path)), place(str(tmp_path), 0, 2), place(str(tmp_path), 1, 2)
    with open_results(first), open_results(second), pytest.raises(JobError, match="another process writes"):
        write(one, 0)
    write(one, 0)


@contextlib.contextmanager
def files_up_to(size: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_whole_lines_and_the_job_goes_on(here):
    with open_results(here) as results:
        results.append(records(0, 1))
        results.write()
        before = here.results.read_bytes()
        results.append(records(2, 3))
        with files_up_to(len(before) + 10), pytest.raises(WriteError, match="File too large; what was written before"):
            results.write()
        assert here.results.read_bytes() == before
        results.write()  # there is room again
    assert indices(here) == [0, 1, 2, 3]


def test_a_disk_that_became_read_only_is_no_reason_to_start_again(here, monkeypatch):
    def refused(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    with open_results(here) as results:
        monkeypatch.setattr(os, "write", refused)
        results.append(records(0))
        with pytest.raises(JobError, match="Read-only file system; expected an output that can be written") as error:
            results.write()
    assert not isinstance(error.value, WriteError)


def test_writes_may_be_short(here, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))
    write(here, *range(4))
    assert indices(here) == [0, 1, 2, 3]


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"text": "a"}', '{"index": "1"}'])
def test_a_foreign_line_is_named(here, line):
    write(here, 0)
    here.results.write_text(here.results.read_text() + line + "\n")
    with pytest.raises(JobError, match=r"line 2 of .*answers.jsonl is no result of a job .*delete the line"):
        indices(here)


def test_what_is_done_is_known_however_many_processes_there_were(tmp_path):
    write(place(str(tmp_path), 0, 2), 0, 2)
    write(place(str(tmp_path), 1, 2), 1)
    write(place(str(tmp_path)), 5)
    assert resume(place(str(tmp_path))).done == {0, 1, 2, 5}
    assert resume(place(str(tmp_path), 2, 3)).done == {2, 5}
    assert resume(place(str(tmp_path), 1, 3)).done == {1}


def test_errors_are_counted_once(here):
    with open_results(here) as results:
        results.append([*records(0), {"index": 1, "error": "too long"}])
        results.write()
    progress = resume(here)
    assert (progress.done, progress.failed) == ({0, 1}, 1)
    progress.count({"index": 1, "error": "too long"})
    assert progress.failed == 1


@pytest.mark.parametrize(("error", "message"), [(errno.ENOLCK, "cannot lock .*; expected an output on a file system")])
def test_a_file_system_without_locks(error, message, here, monkeypatch):
    def refuse(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(JobError, match=message), open_results(here):
        pass

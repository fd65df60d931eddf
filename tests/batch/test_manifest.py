"""The manifest: one output, one job."""

import errno
import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from specdec_jax.batch import manifest
from specdec_jax.batch.errors import JobError, PassingError, WriteError
from specdec_jax.batch.files import place
from specdec_jax.batch.manifest import claim
from specdec_jax.batch.results import open_results

IDENTITY = {"seed": 1, "sampling": {"top_p": 0.5, "top_k": 2}, "draft": None}


def test_the_same_job_may_go_on(tmp_path):
    for process in (0, 1):
        claim(place(str(tmp_path / "new" / "folder"), process, 2), IDENTITY)


def test_a_job_began_when_its_first_run_did(tmp_path):
    first, second = datetime(2024, 7, 26, 10), datetime(2025, 1, 1)
    assert claim(place(str(tmp_path)), IDENTITY, now=first) == first
    assert claim(place(str(tmp_path)), IDENTITY, now=second) == first


def test_a_manifest_of_an_earlier_format_is_refused(tmp_path):
    where = place(str(tmp_path))
    where.manifest.write_text(json.dumps({"format": 1, **IDENTITY}))
    with pytest.raises(JobError, match="another job: format was 1 and is now 2"):
        claim(where, IDENTITY)


def test_another_job_is_refused_by_what_differs(tmp_path):
    claim(place(str(tmp_path)), IDENTITY)
    other = {"seed": 2, "sampling": {"top_p": 0.5, "top_k": 3}, "draft": None}
    with pytest.raises(JobError) as refused:
        claim(place(str(tmp_path)), other)
    assert "another job: seed was 1 and is now 2; sampling.top_k was 2 and is now 3. Expected" in str(refused.value)


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionResetError])  # stores have errors of their own
@pytest.mark.parametrize("method", ["iterdir", "read_text", "mkdir"])
def test_a_store_that_does_not_answer(method, kind, tmp_path, monkeypatch):
    to = place(str(tmp_path))
    claim(to, {"a": 1})

    def fails(self, *args, **kwargs):
        raise kind("the store has gone")

    monkeypatch.setattr(type(to.folder), method, fails)
    with pytest.raises(
        PassingError, match=r"cannot (read|write) .*: the store has gone; what was written before is whole"
    ):
        claim(to, {"a": 1})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2}',
        '{"format": 2, "begun": 7}',
        '{"format": 2, "begun": "noon"}',
        '{"seed"',
        "\0\0",
        "[" * 10**5,
    ],
)
def test_a_damaged_manifest_is_no_licence_to_go_on(tmp_path, text):
    where = place(str(tmp_path))
    claim(where, IDENTITY)
    where.manifest.write_text(text)
    with pytest.raises(JobError, match=r"answers.manifest.json is damaged .*put it back, or name another output"):
        claim(where, IDENTITY)


def test_results_without_a_manifest_are_left_alone(tmp_path):
    where = place(str(tmp_path))
    where.results.write_text('{"index": 0}\n')
    with pytest.raises(JobError, match=r"answers.jsonl holds results, but .*manifest.json is missing"):
        claim(where, IDENTITY)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"cannot make the folder .*file/out: Not a directory"):
        claim(place(str(tmp_path / "file" / "out")), IDENTITY)


def test_a_manifest_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteError, match=r"cannot write .*manifest.json: No space left"):
        claim(place(str(tmp_path)), IDENTITY)
    assert not list(tmp_path.iterdir())


def test_of_two_jobs_that_claim_at_once_one_is_refused(tmp_path, monkeypatch):
    where, create = place(str(tmp_path)), manifest.create_whole

    def after_another(path, text):
        with monkeypatch.context() as undisturbed:
            undisturbed.setattr(manifest, "create_whole", create)
            claim(where, {"seed": 2})
        create(path, text)

    monkeypatch.setattr(manifest, "create_whole", after_another)
    with pytest.raises(JobError, match="another job: seed was 2 and is now 1"):
        claim(where, {"seed": 1})
    assert list(tmp_path.iterdir()) == [where.manifest]


def test_a_manifest_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    where = place(str(tmp_path))
    claim(where, IDENTITY)
    claim(where, IDENTITY)
    assert list(tmp_path.iterdir()) == [where.manifest]


def test_the_name_of_a_manifest_is_on_the_disk_as_well(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()) or real(fd))
    claim(place(str(tmp_path)), IDENTITY)
    assert synced[1:] == [tmp_path]


@pytest.mark.parametrize("name", ["mkdir", "open", "fsync"])
def test_a_full_disk_may_pass(tmp_path, monkeypatch, name):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    where = place(str(tmp_path / "new"))
    if name != "mkdir":
        claim(where, IDENTITY)
    monkeypatch.setattr(os, name, full)
    with pytest.raises(WriteError, match="make room and start the same command again"):
        claim(where, IDENTITY) if name == "mkdir" else open_results(where).__enter__()

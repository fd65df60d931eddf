"""Prompts in a store of objects, as gs://bucket/prompts.jsonl; models are read from this machine alone."""

import pytest
from etils import epath
from jobs import answers
from stores import Store, stand_in

pytestmark = pytest.mark.usefixtures("quick_programs")
THERE = "gs://bucket/prompts.jsonl"


@pytest.fixture
def bucket(monkeypatch, prompts):
    """A store that holds the prompts."""
    objects = stand_in(monkeypatch)
    epath.Path(THERE).write_text(prompts.read_text())
    return objects


def test_a_job_reads_them_there(run, out, undisturbed, bucket):
    status, err = run(prompt_file=THERE)
    assert (status, answers(out)) == (0, undisturbed), err
    before = out.read_bytes()
    assert run(prompt_file=THERE)[0] == 0
    assert out.read_bytes() == before


def test_errors_of_lines_say_where_they_stand(run, bucket):
    epath.Path(THERE).write_text("no JSON\n")
    status, err = run(prompt_file=THERE)
    assert status == 1
    assert f"{THERE}:1: the line is not JSON" in err


def test_what_is_missing_is_refused_and_what_does_not_answer_may_be_tried_again(run, bucket, monkeypatch):
    status, err = run(prompt_file="gs://bucket/none.jsonl")
    assert status == 2
    assert "cannot read the prompts in gs://bucket/none.jsonl: " in err

    def silent(*_, **__):
        raise RuntimeError("503")

    monkeypatch.setattr(Store, "open", silent)
    status, err = run(prompt_file=THERE)
    assert status == 3
    assert f"cannot read the prompts in {THERE}: 503; start the same command again" in err


def test_without_the_library_of_the_store(run, bucket, monkeypatch):
    def missing(*_, **__):
        raise ImportError("Please install gcsfs")

    monkeypatch.setattr(Store, "open", missing)
    status, err = run(prompt_file=THERE)
    assert status == 2
    assert f"{THERE}: Please install gcsfs; expected pip install 'specdec-jax[gcs]' for gs://" in err


@pytest.mark.parametrize("which", ["--target", "--draft"])
def test_models_are_not_read_there(run, which):
    status, err = run(which, "gs://bucket/model")
    assert status == 2
    assert "gs://bucket/model lies in a store of objects, and models are read from this machine's own folders" in err

"""Results in parts, as a store of objects such as gs:// gets them, mostly in a local folder."""

import errno

import pytest
from stores import Store, stand_in
from written import indices, records, write

from specdec_jax.batch.errors import JobError, WriteError
from specdec_jax.batch.files import place
from specdec_jax.batch.lease import leased
from specdec_jax.batch.manifest import claim
from specdec_jax.batch.results import Parts


def test_parts_are_numbered_on_from_earlier_runs(here):
    for which in ([0, 1, 2], [3]):
        parts = Parts(here, size=2)
        for index in which:
            parts.append(records(index))
            if parts.due:
                parts.write()
        parts.write()
    assert [path.name[:14] for path in here.all_results()] == [f"answers.{number:06d}" for number in range(3)]
    assert indices(here) == [0, 1, 2, 3]


def test_two_writers_take_nothing_from_each_other(here):
    one, other = Parts(here), Parts(here)
    for parts, index in ((one, 0), (other, 1)):
        parts.append(records(index))
        parts.write()
    assert sorted(indices(here)) == [0, 1]


def test_a_result_does_not_wait_for_ever(here):
    now = [0.0]
    parts = Parts(here, size=9, seconds=60.0, clock=lambda: now[0])
    now[0] = 100.0
    assert not parts.due
    parts.append(records(0))
    now[0] = 159.0
    parts.append(records(1))
    assert not parts.due
    now[0] = 160.0
    assert parts.due


def test_an_empty_part_is_not_written(here):
    Parts(here).write()
    assert not here.all_results()


def test_a_part_that_cannot_be_written_is_not_forgotten(here, monkeypatch):
    parts = Parts(here, size=1)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(here.folder), "write_bytes", full)
        parts.append(records(0))
        with pytest.raises(WriteError, match=r"cannot write .*answers.000000-\w+.jsonl: No space left"):
            parts.write()
    parts.write()
    assert indices(here) == [0]


@pytest.mark.parametrize("error", [OSError("the answer was lost"), RuntimeError("503"), KeyboardInterrupt()])
def test_a_part_that_seemed_to_fail_is_not_there_twice(error, here, monkeypatch):
    """A store may have written it all the same."""
    parts = Parts(here, size=1)
    whole = type(here.folder).write_bytes

    def lost(path, data):
        whole(path, data)
        raise error

    parts.append(records(0))
    with monkeypatch.context() as patch:
        patch.setattr(type(here.folder), "write_bytes", lost)
        with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else WriteError):
            parts.write()
    parts.write()
    assert indices(here) == [0]
    parts.append(records(1))
    parts.write()
    assert indices(here) == [0, 1]


@pytest.fixture
def bucket(monkeypatch):
    """The objects of a store that epath takes for Google's."""
    return stand_in(monkeypatch)


def test_an_object_store_gets_parts(bucket):
    where = place("gs://bucket/out")
    claim(where, {"seed": 1})
    for index in (0, 1):
        claim(where, {"seed": 1})
        write(where, index)
    names = ["answers.000000", "answers.000001", "answers.manife"]
    assert [name.removeprefix("/bucket/out/")[:14] for name in sorted(bucket)] == names
    assert indices(where) == [0, 1]
    quick = {"beat": 0.02, "silence": 1.0}
    with leased(where, **quick), pytest.raises(JobError, match="another process writes"), leased(where, **quick):
        pass
    with pytest.raises(JobError, match=r"gs://bucket/out/answers.manifest.json is of another job: seed was 1 and is"):
        claim(where, {"seed": 2})


def test_without_the_library_of_the_store(bucket, monkeypatch):
    def missing(*_, **__):
        raise ImportError("Please install gcsfs")

    monkeypatch.setattr(Store, "makedirs", missing)
    with pytest.raises(JobError, match=r"cannot reach gs://bucket/out: Please install gcsfs; expected pip install"):
        claim(place("gs://bucket/out"), {})

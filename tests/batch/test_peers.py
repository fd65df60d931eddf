"""What the processes of a pod agree on; the other process is played by what it would have said."""

import numpy as np
import pytest

from specdec_jax.batch import ALONE, Host, JobError, Peers, Progress, Shared, WriteError


def with_another(*says) -> Peers:
    """Two processes, of which the other says this, one value each time that all are asked."""
    told = iter(says)
    return Peers(lambda value: np.stack([value, np.asarray(next(told), value.dtype)]))


def bits(total: int, *places: int) -> np.ndarray:
    return np.packbits(np.isin(np.arange(total), places))


def test_any_of_them():
    assert with_another(True).any(False)
    assert with_another(False).any(True)
    assert not with_another(False).any(False)
    assert ALONE.any(True)
    assert not ALONE.any(False)


def test_what_fails_in_one_fails_in_all():
    with with_another(False).together():
        pass
    with (
        pytest.raises(JobError, match="another process of this job cannot go on; see what it says"),
        with_another(True).together(),
    ):
        pass
    asked = []
    peers = Peers(lambda value: asked.append(value.tolist()) or value[None])
    with pytest.raises(KeyError, match="mine"), peers.together():
        raise KeyError("mine")
    assert asked == [True], "the others have to hear of it"


def test_all_have_to_be_told_the_same():
    same = np.frombuffer(b"abcd", np.uint8)
    with_another(same).require_same("abcd")
    with pytest.raises(JobError, match="were not told the same; expected one command, and on every host the same"):
        with_another(same).require_same("abce")


def test_the_first_of_what_they_bring():
    other = np.frombuffer(b"2024-07-26", np.uint8)
    assert with_another(other).first("2025-01-01") == "2024-07-26"
    assert with_another(other).first("2023-01-01") == "2023-01-01"


def test_what_any_has_found_is_done():
    progress = Progress()
    for record in ({"index": 0}, {"index": 9, "error": "too long"}):
        progress.count(record)
    with_another(bits(12, 0, 3, 11), bits(12, 3)).union(progress, 12)
    assert progress.done == {0, 3, 9, 11}
    assert progress.failed == 2


class Kept:
    """Results in memory, until the disk is full."""

    def __init__(self):
        self.due, self.written, self._waiting = True, [], []

    def append(self, records):
        self._waiting += records

    def write(self):
        if len(self.written) >= 4:
            raise WriteError("full")
        self.written += self._waiting
        self._waiting = []


def test_each_writes_its_share_and_none_goes_on_where_one_cannot():
    records = [{"index": index} for index in range(5)]
    kept = Kept()
    assert Shared(kept, Host(1, 2), with_another(False, False)).append(records) == records
    assert kept.written == [{"index": 1}, {"index": 3}]
    with pytest.raises(WriteError, match="another process"):
        Shared(kept, Host(1, 2), with_another(False, True)).append(records)
    with pytest.raises(WriteError, match="full"):
        Shared(kept, Host(1, 2), with_another(False, False)).append(records)


def test_what_waits_is_not_kept_until_it_is_due_somewhere():
    records = [{"index": index} for index in range(4)]
    kept = Kept()
    kept.due = False
    alone = Shared(kept, Host(0, 2), with_another(False, False))
    assert alone.append(records[:2]) == []
    assert alone.write() == records[:2]
    assert Shared(kept, Host(0, 2), with_another(True, False)).append(records[2:]) == records[2:]
    assert kept.written == [records[0], records[2]]

"""A job of processes that decode together, which are threads here: what one of them meets, all hear of at once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from busy import make, requests

from specdec_jax.batch import (
    Answer,
    Finished,
    Host,
    JobError,
    PassingError,
    Peers,
    Progress,
    Refused,
    WriteError,
    run_job,
)

COUNT, HOSTS = 14, 2
ALL = list(range(COUNT))


class Room:
    """Where processes meet; whoever waits there for one that does not come gets an error."""

    def __init__(self):
        self._barrier = threading.Barrier(HOSTS, timeout=30)
        self._said: list[Any] = [None] * HOSTS

    def peers(self, process: int) -> Peers:
        def gather(value: np.ndarray) -> np.ndarray:
            self._said[process] = value
            self._barrier.wait()
            heard = np.stack(self._said)
            self._barrier.wait()
            return heard

        return Peers(gather, lasting=(JobError, LookupError))


class Kept:
    """Results in memory, which are due when there are ``size`` of them; the disk is full after ``room``."""

    def __init__(self, size: int, room: int):
        self.written: list[int] = []
        self._waiting: list[int] = []
        self._size, self._room = size, room

    @property
    def due(self) -> bool:
        return len(self._waiting) >= self._size

    def append(self, records) -> None:
        self._waiting += [record["index"] for record in records]

    def write(self) -> None:
        if len(self.written) + len(self._waiting) > self._room:
            raise WriteError("full")
        self.written += self._waiting
        self._waiting = []


class Process:
    """One of them, and how it ended."""

    def __init__(self, number: int, room: Room, *, size: int = 0, space: int = COUNT):
        self.host, self.peers = Host(number, HOSTS), room.peers(number)
        self.results, self.progress = Kept(size, space), Progress()
        self.stretches, self.error = 0, None
        self.fails: dict[str, BaseException] = {}
        self.stop: Callable[[], bool] = lambda: False
        self.over: Callable[[], bool] = lambda: False
        self.seen: Callable[[], None] = lambda: None

    def reach(self, place: str) -> None:
        """Here it fails, once some stretches are behind it."""
        if self.stretches >= 2 and place in self.fails:
            raise self.fails[place]

    def run(self) -> None:
        def asked() -> Iterator:
            for request in requests(COUNT):
                self.reach("the prompts")
                yield request

        def record(found: Answer | Refused) -> dict[str, Any]:
            self.reach("a record")
            return {}

        def after(finished: Finished) -> None:
            self.stretches += 1
            self.seen()
            self.reach("the screen")

        try:
            run_job(
                make("none", max_rounds=4),
                asked(),
                record,
                self.results,
                self.progress,
                host=self.host,
                peers=self.peers,
                after=after,
                stop=self.stop,
                over=self.over,
            )
        except BaseException as error:
            self.error = error


def run(processes: Sequence[Process]) -> None:
    threads = [threading.Thread(target=process.run) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def pair() -> list[Process]:
    room = Room()
    return [Process(number, room) for number in range(HOSTS)]


def test_each_writes_its_share_and_counts_all(pair):
    run(pair)
    assert [process.error for process in pair] == [None, None]
    assert [sorted(process.results.written) for process in pair] == [ALL[0::2], ALL[1::2]]
    assert all(process.progress.done == {*ALL} for process in pair)


@pytest.mark.parametrize("sizes", [(2, 5), (4, 1)])
def test_nothing_counts_before_it_is_written_where_it_belongs(sizes):
    room = Room()
    pair = [Process(number, room, size=size) for number, size in enumerate(sizes)]
    counted = []

    def check() -> None:
        written = {index for process in pair for index in process.results.written}
        counted.append(len(pair[0].progress.done))
        assert pair[0].progress.done <= written

    pair[0].seen = check
    run(pair)
    assert [process.error for process in pair] == [None, None]
    assert all(process.progress.done == {*ALL} for process in pair)
    assert any(0 < count < COUNT for count in counted), "all was counted at the end"


@pytest.mark.parametrize("place", ["the prompts", "a record", "the screen"])
@pytest.mark.parametrize(
    ("error", "kind"),
    [(OSError("unexpected"), PassingError), (LookupError("the prompts have changed"), JobError)],
    ids=["passes", "stays"],
)
def test_what_fails_in_one_ends_the_others_at_once(pair, place, error, kind):
    pair[1].fails = {place: error}
    run(pair)
    assert pair[1].error is error
    assert type(pair[0].error) is kind, "it waited for one that had left"
    assert "another process of this job cannot go on; see what it says" in str(pair[0].error)
    assert pair[0].stretches <= pair[1].stretches + 1
    assert pair[0].progress.done < {*ALL}


def test_a_full_disk_of_one_ends_all():
    room = Room()
    pair = [Process(0, room), Process(1, room, space=COUNT // 4)]
    run(pair)
    assert str(pair[1].error) == "full"
    assert type(pair[0].error) is PassingError
    written = {index for process in pair for index in process.results.written}
    assert 0 < len(pair[0].progress.done) < COUNT
    assert pair[0].progress.done <= written


def test_a_full_disk_at_the_very_end_ends_all():
    room = Room()
    pair = [Process(0, room, size=COUNT), Process(1, room, size=COUNT, space=3)]
    run(pair)
    assert [type(process.error) for process in pair] == [PassingError, WriteError]
    assert not pair[0].progress.done


@pytest.mark.parametrize("how", ["stop", "over"])
def test_one_that_is_asked_to_stop_stops_all(pair, how):
    setattr(pair[1], how, lambda: pair[1].stretches >= 2)
    run(pair)
    assert [process.error for process in pair] == [None, None]
    assert pair[0].stretches == pair[1].stretches
    assert pair[0].progress.done == pair[1].progress.done < {*ALL}
    assert {*pair[0].results.written, *pair[1].results.written} == pair[0].progress.done
    assert (pair[1].stretches == 2) == (how == "over")

"""A store of objects has one writer a share: a second is refused, and one that was killed stands in nobody's way."""

import contextlib
import threading
import time

import pytest

from specdec_jax.batch import JobError, PassingError
from specdec_jax.batch.files import place
from specdec_jax.batch.lease import leased
from specdec_jax.batch.results import Parts

BEAT, SILENCE = 0.02, 1.0
QUICK = {"beat": BEAT, "silence": SILENCE}


@pytest.fixture
def here(tmp_path):
    return place(str(tmp_path))


def left(here) -> list[str]:
    return [path.name for path in here.folder.iterdir() if path.suffix == ".lease"]


def test_a_second_is_refused_and_the_next_is_not(here):
    with leased(here, **QUICK) as held:
        refused = pytest.raises(JobError, match=r"another process writes .*answers.jsonl; expected one for each output")
        with refused, leased(here, **QUICK):
            pass
        assert held()
        assert len(left(here)) == 1
    assert left(here) == []
    with leased(here, **QUICK):
        pass


@pytest.mark.parametrize("method", ["iterdir", "read_text"])
def test_a_store_that_does_not_answer(method, here, monkeypatch):
    (here.folder / f"answers.{0:032x}.lease").write_text("holds 7\n")

    def fails(self, *args, **kwargs):
        raise ConnectionResetError("the store has gone")

    monkeypatch.setattr(type(here.folder), method, fails)
    with pytest.raises(PassingError, match=r"cannot read .*: the store has gone; what was written"), leased(here):
        pass


def test_what_was_left_by_a_kill_is_taken_away_once_it_was_silent(here):
    (here.folder / f"answers.{0:032x}.lease").write_text("holds 7\n")
    start = time.monotonic()
    with leased(here, **QUICK):
        assert time.monotonic() - start >= SILENCE
        assert len(left(here)) == 1
    assert left(here) == []


@pytest.mark.parametrize("number", range(3))
def test_of_several_that_start_at_once_one_goes_on(number, here):
    start, inside, refused = threading.Barrier(3), [], []

    def run() -> None:
        start.wait()
        try:
            with leased(here, **QUICK):
                inside.append(threading.get_ident())
                time.sleep(2 * SILENCE)
        except JobError:
            refused.append(threading.get_ident())

    runs = [threading.Thread(target=run) for _ in range(3)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert (len(inside), len(refused)) == (1, 2)
    assert left(here) == []


def test_the_other_processes_of_a_run_have_shares_of_their_own(tmp_path):
    first, second = (place(str(tmp_path), process, 2) for process in range(2))
    with leased(first, **QUICK), leased(second, **QUICK):
        assert len(left(first)) == 2
        with pytest.raises(JobError, match="another process writes"), leased(place(str(tmp_path)), **QUICK):
            pass


def test_who_lost_its_share_writes_no_more(here):
    with contextlib.suppress(JobError), leased(here, **QUICK) as held:
        parts = Parts(here, held=held)
        parts.append([{"index": 0}])
        for path in here.folder.iterdir():
            path.unlink()
        time.sleep(5 * BEAT)
        assert left(here) == [], "it is not put back"
        with pytest.raises(JobError, match="another process took this output over while this one gave no sign"):
            parts.write()

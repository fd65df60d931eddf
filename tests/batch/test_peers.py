"""What the processes of a pod agree on; the other process is played by what it would have said."""

import numpy as np
import pytest

from specdec_jax.batch import ALONE, JobError, PassingError, Peers, WriteError

FINE, PASSES, STAYS = 0, 1, 2


def with_another(*says, **options) -> Peers:
    """Two processes, of which the other says this, one value each time that all are asked."""
    told = iter(says)
    return Peers(lambda value: np.stack([value, np.asarray(next(told), value.dtype)]), **options)


def bits(total: int, *places: int) -> np.ndarray:
    return np.packbits(np.isin(np.arange(total), places))


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_what_any_of_them_is_asked(own, other):
    with with_another([FINE, other, False]).together(lambda: own, lambda: False) as heard:
        assert heard == []
    assert heard == [own or other, False]
    with ALONE.together(lambda: own) as heard:
        pass
    assert heard == [own]


@pytest.mark.parametrize(("said", "kind"), [(PASSES, PassingError), (STAYS, JobError)])
def test_what_fails_in_one_fails_in_all(said, kind):
    with (
        pytest.raises(JobError, match="another process of this job cannot go on; see what it says") as error,
        with_another([said, True]).together(lambda: True) as heard,
    ):
        pass
    assert type(error.value) is kind
    assert heard == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("mine"), PASSES),
        (KeyboardInterrupt("mine"), PASSES),
        (WriteError("mine"), PASSES),
        (JobError("mine"), STAYS),
        (EOFError("mine"), STAYS),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("where", ["inside", "in a question"])
def test_the_others_hear_of_it(where, error, said):
    heard = []
    peers = Peers(lambda value: heard.append(value.tolist()) or value[None], lasting=(JobError, EOFError))

    def question() -> bool:
        if where == "in a question":
            raise error
        return True

    def meet() -> None:
        with peers.together(question):
            if where == "inside":
                raise error

    with pytest.raises(type(error), match="mine"):
        meet()
    assert heard == [[said, 0]]


def test_all_have_to_be_told_the_same():
    same = np.frombuffer(b"abcd", np.uint8)
    with_another(same).require_same("abcd")
    with pytest.raises(JobError, match="were not told the same; expected one command, and on every host the same"):
        with_another(same).require_same("abce")


def test_the_first_of_what_they_bring():
    other = np.frombuffer(b"2024-07-26", np.uint8)
    assert with_another(other).first("2025-01-01") == "2024-07-26"
    assert with_another(other).first("2023-01-01") == "2023-01-01"


def test_what_any_has_found():
    assert with_another(bits(12, 0, 3, 11)).union({0, 9}, 12) == {0, 3, 9, 11}
    assert ALONE.union(set(), 12) == set()

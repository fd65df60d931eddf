"""A prompt file that is read again is the same, or found out."""

import pytest

from specdec_jax.cli import UserError
from specdec_jax.cli.prompts import from_file
from specdec_jax.cli.snapshot import Snapshot


def test_it_has_the_prompts_of_the_file(write_lines):
    path = write_lines({"prompt": "a"}, "", "no JSON", {"prompt": "b"})
    snapshot = Snapshot(path)
    assert len(snapshot) == 3
    assert [*snapshot] == [*snapshot] == from_file(path)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (["a", "x", "c"], "line 2"),
        (["a", "b", "c", "d"], "line 4"),
        (["a", "b"], "the end"),
        ([], "the end"),
        (["b", "a", "c"], "line 1"),
    ],
)
def test_a_change_is_found(write_lines, after, what):
    snapshot = Snapshot(write_lines("a", "b", "c", name="prompts.txt"))
    write_lines(*after, name="prompts.txt")
    with pytest.raises(UserError, match=rf"{what} of .*prompts.txt is not what it was when this run began; expected"):
        list(snapshot)


def test_the_same_bytes_read_otherwise_are_other_prompts(write_lines):
    text, lines = (Snapshot(write_lines({"prompt": "a"}, name=name)).identity for name in ("a.txt", "a.jsonl"))
    assert text["digest"] == lines["digest"]
    assert text != lines

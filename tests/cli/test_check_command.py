"""``specdec check`` on tiny models."""

import json

import jax
import pytest
from programs import quick

from specdec_jax.cli import main

pytestmark = pytest.mark.usefixtures("quick_programs")

SMALL = ["--capacity", "32", "--draft-length", "2", "--max-new-tokens", "6", "--draws", "64", "--batch", "32"]


@pytest.fixture
def line(tiny, other, write_lines, monkeypatch):
    monkeypatch.setattr(jax, "jit", quick)
    path = write_lines({"prompt": "a b c a b"}, {"prompt": "d e"})
    return ["check", "--target", str(tiny), "--draft", str(other("drafts", seed=4)), "--prompt-file", str(path), *SMALL]


@pytest.mark.heavy
def test_an_exact_pair(line, capsys):
    assert main(line) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert found["holds"]
    assert "A bias of" in out
    names = [one["check"] for one in found["checks"]]
    assert len(names) == len(set(names)) == 9
    draws = found["checks"][-1]["figures"]
    assert draws["draws"] == sum(cell["count"] for cell in draws["cells"]) == 64
    assert 0 < draws["smallest_bias"] < 1
    for one in found["checks"]:
        if "rows" in one["figures"]:
            assert (one["figures"]["rows"], one["figures"]["differences"]) == (2, [])

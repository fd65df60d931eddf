"""``specdec tune`` on a tiny model: costs are kept, found, and told apart."""

import json
from pathlib import Path

import pytest

from specdec_jax import Costs
from specdec_jax.bench import simulated
from specdec_jax.cli import UserError, costs, drafting, main
from specdec_jax.models import load
from specdec_jax.state import GenerateConfig

CONFIG = GenerateConfig(capacity=64, draft_length=3)
FOUND = Costs(0.1, [1.0, 1.25])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def made(tiny):
    return drafting.make("ngram", load(tiny))


@pytest.mark.heavy
def test_measured_once_and_found(tiny, capsys, monkeypatch):
    # Rounds of a model as small as this take less time than the clock's noise.
    seconds = iter([1.0, 9.0, 10.0, 11.0, 12.0])
    monkeypatch.setattr(simulated, "in_turns", lambda runs, repeats: {name: [next(seconds)] for name in runs})
    small = ["--capacity", "64", "--draft-length", "3", "--rounds", "8", "--repeats", "1", "--alphas", "0.5"]
    assert main(["tune", "--target", str(tiny), *small]) == 0
    out = capsys.readouterr().out
    told = json.loads(out.splitlines()[-1])
    assert "in milliseconds" in out
    assert [one["alpha"] for one in told["rounds"]] == [0.0, 0.0, 0.0, 0.5]
    assert all(one["simulated"] for one in told["rounds"])
    found = costs.find(drafting.make("ngram", load(tiny)), CONFIG, 1)
    assert found == Costs(told["draft_step"], told["verify"])
    assert Path(told["path"]).is_file()


def test_a_record_is_of_one_batch_capacity_and_pair(made, tiny):
    costs.save(costs.key(made, CONFIG, 2), FOUND)
    assert costs.find(made, CONFIG, 2) == FOUND
    assert costs.find(made, CONFIG, 1) is None
    assert costs.find(made, GenerateConfig(capacity=65, draft_length=3), 2) is None
    assert costs.find(made, GenerateConfig(capacity=64, draft_length=7), 2) is None
    assert costs.find(drafting.make(str(tiny), made.target), CONFIG, 2) is None
    assert costs.find(drafting.make("none", made.target), CONFIG, 2) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "JSONDecodeError"),
        (b"[1]", "TypeError"),
        (b"\xff", "codec can't decode"),
        (b'{"key": {}}', "ValueError: it was measured for something else"),
        ({"draft_step": -1.0}, r"costs.draft_step is -1.0; expected finite numbers at least 0"),
        ({"draft_step": "x"}, "could not convert"),
        ({"verify": [1.0]}, "expected one number, and one for each of the 2 verify widths"),
        ({"verify": None}, "TypeError"),
    ],
)
def test_what_is_no_record_is_said_to_be_none(content, why, made):
    path = costs.save(costs.key(made, CONFIG, 1), FOUND)
    changed = content if isinstance(content, bytes) else json.dumps(json.loads(path.read_text()) | content).encode()
    path.write_bytes(changed)
    with pytest.raises(UserError, match=rf"is no record of costs \(.*{why}.*\); delete it, or measure again") as error:
        costs.find(made, CONFIG, 1)
    assert str(path) in str(error.value)


def test_a_folder_that_cannot_be_written(made, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write .*; expected a folder that can be written to"):
        costs.save(costs.key(made, CONFIG, 1), FOUND)


@pytest.mark.parametrize(
    ("option", "message"),
    [("--draft none", "draft is none; expected a drafter"), ("--repeats 0", "repeats is 0; expected >= 1")],
)
def test_options_that_cannot_be(option, message, tiny, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["tune", "--target", str(tiny), *option.split()])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_more_rounds_than_a_row_holds(tiny, capsys):
    assert main(["tune", "--target", str(tiny), "--capacity", "64", "--rounds", "60"]) == 2
    assert "60 rounds give up to 60 tokens; expected at most 56" in capsys.readouterr().err

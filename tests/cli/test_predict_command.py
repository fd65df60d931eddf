"""``specdec predict``: the check values from numbers alone, and a tiny pair beside a clock of the test's own."""

import importlib
import json
import re
from itertools import count
from typing import Any

import numpy as np
import pytest
from programs import quick

from specdec_jax import Costs
from specdec_jax.bench import lengths
from specdec_jax.cli import costs, drafting, main
from specdec_jax.models import load
from specdec_jax.state import GenerateConfig

CONTEST = importlib.import_module("specdec_jax.bench.contest")  # the package has a function of that name
COMPILED: Any = lengths._with_length
QUICKLY = quick(COMPILED.__wrapped__, static_argnames=("target", "drafter", "config"))


def told(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_check_values(capsys):
    assert main(["predict", "--alpha", ".6", ".7", ".8", ".9", "--draft-cost", ".05"]) == 0
    found = told(capsys)["alphas"]
    assert [one["tokens"][4] for one in found] == pytest.approx([2.3056, 2.7731, 3.3616, 4.0951], abs=5e-5)
    assert [one["best"]["draft_length"] for one in found] == [4, 6, 8, 13]
    assert [one["best"]["speedup"] for one in found] == pytest.approx([1.9213, 2.3529, 3.0921, 4.6741], abs=5e-5)


def test_the_best_is_told_and_shown_however_long_it_is(capsys):
    assert main(["predict", "--alpha", ".5", ".95", "--draft-cost", ".01"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])["alphas"][1]
    assert found["best"]["draft_length"] == 40
    assert found["best"]["speedup"] == pytest.approx(12.54, abs=0.005)
    assert found["speedup"][40] == max(found["speedup"]) == found["best"]["speedup"]
    assert re.findall(r"^│ (\d+) +│", out, flags=re.MULTILINE) == [*map(str, range(1, 17)), "40"]
    assert "may be better" not in out


def test_a_best_that_is_the_bound_is_said_to_be_one(capsys):
    assert main(["predict", "--alpha", ".95", "--draft-cost", ".01", "--draft-length", "8"]) == 0
    assert "More than 8 guesses" in capsys.readouterr().out


def test_a_best_without_end_needs_a_bound(capsys):
    assert main(["predict", "--alpha", "1"]) == 2
    assert "expected a bound, the most guesses of a round" in capsys.readouterr().err


def test_passes_that_cost_more_make_the_best_shorter(capsys):
    assert main(["predict", "--alpha", ".3", ".7", "--draft-cost", ".1", "--verify-costs", "1", "1.3", "1.35"]) == 0
    found = told(capsys)
    assert found["verify_costs"] == [1, 1.3, 1.35]
    low, high = found["alphas"]
    assert low["best"] == {"draft_length": 0, "tokens": 1, "speedup": 1}
    assert high["best"]["draft_length"] == 2
    assert high["speedup"][2] == pytest.approx((1 + 0.7 + 0.49) / (2 * 0.1 + 1.35))
    assert found["break_even_alpha"]["1"] == pytest.approx(0.4)


def test_rounds_of_a_batch_are_those_of_its_slowest_row(capsys):
    assert main(["predict", "--alpha", "0", ".5", "--tokens", "10", "--rows", "1", "4"]) == 0
    none, some = (one["rounds"] for one in told(capsys)["alphas"])
    assert none == {"1": 10, "4": 10}
    assert some["1"] < some["4"] < 10


def test_guesses_that_cost_more_than_a_step_never_pay(capsys):
    assert main(["predict", "--alpha", ".9", "--draft-cost", "1.5", "--draft-length", "2"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["break_even_alpha"] == {"1": None, "2": None}
    assert "never" in out


@pytest.mark.parametrize(("kind", "start"), [("svg", b"<svg"), ("png", b"\x89PNG\r\n\x1a\n")])
def test_the_picture_is_of_the_kind_that_its_name_says(kind, start, tmp_path, capsys):
    path = tmp_path / f"curves.{kind}"
    assert main(["predict", "--alpha", ".7", "--draft-length", "3", "--output", str(path)]) == 0
    assert path.read_bytes().startswith(start)
    assert str(path) in capsys.readouterr().out


@pytest.fixture
def pair(tiny, other, tmp_path, monkeypatch, quick_programs):
    """A tiny pair whose costs are kept, and a clock by which reading a prompt takes 1 s and answering it 2, 3, ..."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(lengths, "_with_length", QUICKLY)
    draft, config = other("drafts", seed=4), GenerateConfig(capacity=32, draft_length=2)
    target = load(tiny)
    for name in (str(draft), "ngram"):
        costs.save(costs.key(drafting.make(name, target), config, 1), Costs(0.1, [1.0, 1.5]))

    def in_turns(runs, repeats):
        seconds = count(2)
        for run in runs.values():
            run()
        return {name: [1.0 if name.endswith("reading") else float(next(seconds))] * repeats for name in runs}

    monkeypatch.setattr(CONTEST, "in_turns", in_turns)
    small = ["--capacity", "32", "--draft-length", "2", "--max-new-tokens", "8", "--repeats", "1"]
    return ["--target", str(tiny), "--draft", str(draft), *small]


@pytest.mark.heavy
def test_two_models_beside_the_measurement(pair, write_lines, tmp_path, capsys):
    path = write_lines({"prompt": "a b c a b"}, {"prompt": "d e"})
    picture = tmp_path / "curves.svg"
    assert main(["predict", *pair, "--prompt-file", str(path), "--output", str(picture)]) == 0
    found = told(capsys)
    assert found["costs_were_kept"]
    assert found["prompts"] == {"counted": 1, "compared": 1}
    assert found["costs"] == {"draft_step": pytest.approx(0.1), "verify": pytest.approx([1.0, 1.5])}
    assert list(found["measured"]) == ["no drafter", "1", "2", "adaptive"]
    assert [found["measured"][name]["speedup"] for name in ("no drafter", "1", "2", "adaptive")] == pytest.approx(
        [1, 1 / 2, 1 / 3, 1 / 4]  # by the clock, when reading is taken off
    )
    assert found["measured"]["no drafter"]["block_efficiency"] == 1
    assert {one["tokens"] for one in found["measured"].values()} == {found["measured"]["no drafter"]["tokens"]}
    assert found["made_at"] == [1, 1]
    assert set(found["break_even_alpha"]) == {"1", "2"}
    alphas, forecast = found["alpha_at"], found["predicted"]
    assert forecast[0] == {"draft_length": 0, "tokens": 1, "cost": 1, "speedup": 1}
    assert [one["tokens"] for one in forecast[1:]] == pytest.approx(1 + np.cumsum(np.cumprod(alphas)))
    assert [one["cost"] for one in forecast[1:]] == pytest.approx([1.6, 1.7], rel=0.1)
    assert picture.read_text().count("measured") >= 1


def test_one_prompt_is_refused_before_models_are_loaded(write_lines, capsys):
    assert main(["predict", "--target", "none", "--prompt-file", str(write_lines({"prompt": "a"}))]) == 2
    assert "prompts.jsonl has 1 prompts; expected 2 or more: from some it is predicted" in capsys.readouterr().err


@pytest.mark.heavy
def test_answers_too_short_to_time(pair, write_lines, tmp_path, monkeypatch, capsys):
    def in_turns(runs, repeats):
        for run in runs.values():
            run()
        return {name: [1.0] * repeats for name in runs}

    monkeypatch.setattr(CONTEST, "in_turns", in_turns)
    files = str(write_lines({"prompt": "a"}, {"prompt": "b"})), str(tmp_path / "curves.svg")
    assert main(["predict", *pair, "--prompt-file", files[0], "--output", files[1]]) == 0
    printed = capsys.readouterr().out
    assert "?: answers were too short to time beside reading their prompts; raise --max-new-tokens." in printed
    found = json.loads(printed.splitlines()[-1])
    assert {one["speedup"] for one in found["measured"].values()} == {None}
    assert found["alpha_at"]  # the prediction is not lost


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--alpha 1.2", "alpha is 1.2; expected a probability"),
        ("--draft-cost -1", "draft_cost is -1.0 and verify_cost 1.0; expected numbers"),
        ("--verify-costs 1 1.5 --draft-length 4", "verify_costs has 2 numbers; expected 5, for passes of up to"),
        ("--output none/curves.svg", "cannot write none/curves.svg; expected a file in a folder that exists"),
    ],
)
def test_numbers_that_cannot_be(line, message, capsys):
    assert main(["predict", *line.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--target x --alpha .7 --draft-cost .1", "got models and --alpha and --draft-cost; expected one or the other"),
        ("--prompt-file x.jsonl", "got --prompt-file without models; expected --target or --draft"),
        ("--draft none", "draft is none; expected a drafter"),
        ("--verify-costs 2 3", "verify_costs is (2.0, 3.0); expected 1, for a step of the target"),
        ("--verify-costs 1", "verify_costs is (1.0,); expected 1, for a step of the target, and"),
        (
            "--alpha .7 --capacity 999 --repeats 9 --max-new-tokens 3 --temperature .5",
            "got --temperature and --capacity and --max-new-tokens and --repeats without models; expected --target or",
        ),
        ("--draft x --rows 2 --tokens 9", "got models and --rows and --tokens; expected one or the other: models are"),
        ("--rows 8 8", "rows is (8, 8); expected each number once"),
        ("--alpha .7 .7", "alpha is (0.7, 0.7); expected each number once"),
        ("--target x --temperature -1", "temperature is -1.0; expected"),
        ("--rows 0", "rows has 0; expected batches of at least 1"),
        ("--tokens 0", "tokens is 0; expected an integer from 1"),
        ("--target x --repeats 0", "repeats is 0; expected an integer from 1"),
        ("--draft-length 0", "draft_length is 0; expected an integer from 1"),
        ("--output curves.pdf", "output is curves.pdf; expected a name that ends in .svg or .png"),
    ],
)
def test_options_that_cannot_be(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["predict", *line.split()])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.heavy
def test_where_guesses_are_not_made_no_alpha_decides(pair, write_lines, capsys):
    path = write_lines({"prompt": "a b c d e"}, {"prompt": "d e"})
    ngrams = [*pair[:3], "ngram", *pair[4:]]
    assert main(["predict", *ngrams, "--prompt-file", str(path)]) == 0
    found = told(capsys)
    assert found["made_at"][0] < 1
    assert found["break_even_alpha"] is None

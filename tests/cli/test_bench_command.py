"""``specdec bench`` on a tiny model."""

import json
import os
import sys

import jax
import numpy as np
import pytest

from specdec_jax import GenerateConfig
from specdec_jax.bench import speculative
from specdec_jax.bench.huggingface import transformers_contestants
from specdec_jax.cli import bench as command
from specdec_jax.cli import main
from specdec_jax.cli.startup import StartUp
from specdec_jax.models import load

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture
def prompts(write_lines):
    return write_lines({"messages": [{"role": "user", "content": "a b c"}]}, {"prompt": "d e"})


@pytest.fixture(autouse=True)
def threads_stay(monkeypatch):
    """The command binds its process to as many cores as it shall use; the tests go on with all."""
    if hasattr(os, "sched_setaffinity"):
        monkeypatch.setattr(os, "sched_setaffinity", lambda *args: None)


@pytest.fixture(autouse=True)
def begins(monkeypatch):
    """Calls of what starts processes of its own, and is tested by itself."""
    calls = []

    def measure(*args, **settings):
        calls.append((args, settings))
        return {"cold": StartUp(1.0, 2.0, 30.0, 0.5), "warm": StartUp(1.0, 2.0, 3.0, 0.5)}

    monkeypatch.setattr(command.startup, "measure", measure)
    return calls


SMALL = ["--capacity", "64", "--max-new-tokens", "12", "--repeats", "1", "--draft-length", "2", "--fixed", "2"]


def bench(*args) -> int:
    return main(["bench", *SMALL, *map(str, args)])


@pytest.mark.heavy
def test_tables_a_picture_and_one_line_of_json(tiny, prompts, tmp_path, capsys, begins):
    picture = tmp_path / "speed.svg"
    asked = ["--target", tiny, "--prompt-file", prompts, "--draft", tiny, "--no-transformers", "--picture", picture]
    assert bench(*asked, "--batches", 3) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert "tokens/s" in out
    assert "Adaptive, by estimated costs" in out
    assert found["prompts"] == 2
    assert found["second_call_traces"] == 0
    assert found["round"]["fixed 2"]["draft_seconds"] > 0
    (contest,) = found["batches"]
    entries = contest["contestants"]
    assert contest["batch"] == 3
    assert list(entries) == ["plain", "fixed 2", "adaptive"]
    assert all(entry["equal"] == 1.0 for entry in entries.values())
    assert entries["fixed 2"]["accepted_at"][0] > 0.5  # drafted by itself
    assert "accepted_at" not in entries["plain"]
    assert contest["adaptive_against"]["plain"] == entries["adaptive"]["speedup"]
    assert "best fixed" in contest["adaptive_against"]
    assert "batch size" in picture.read_text()
    assert found["startup"]["warm"] == StartUp(1.0, 2.0, 3.0, 0.5)._asdict()
    held = {"target_weights": "float", "draft_weights": "float"}
    assert begins == [((str(tiny), str(tiny)), held | {"capacity": 64, "draft_length": 2})]


def test_the_start_up_can_be_left_out(tiny, write_lines, begins):
    """With prompts that are refused before anything is timed."""
    asked = ["--target", tiny, "--prompt-file", write_lines("no json"), "--no-transformers"]
    assert bench(*asked) == bench(*asked, "--no-startup") == 2
    assert len(begins) == 1


@pytest.mark.heavy
def test_random_weights_for_the_drafter_and_not_for_the_target(tiny):
    target = load(tiny)
    built, draft = command._drafted(command.Options(draft=str(tiny), random_draft=True), target)
    assert draft.name == "tiny with random weights"
    assert built.params is target.params
    weight, random = (params["layers"][0]["mlp"]["down"]["weight"] for params in (target.params, draft.params))
    assert weight.shape == random.shape
    assert not np.allclose(weight, random, atol=0.1)


def test_a_draft_model_is_written_out_for_transformers(tiny, tmp_path):
    target = load(tiny)
    folder = command._assistant(command.Options(draft=str(tiny)), target, tmp_path / "draft")
    assert folder is not None
    jax.tree.map(np.testing.assert_array_equal, load(folder).params, target.params)


@pytest.mark.parametrize("drafter", [{"draft": "ngram"}, {"draft": "exit:1"}, {"draft": "tiny", "random_draft": True}])
def test_other_drafters_assist_nobody_else(drafter, tiny, tmp_path):
    assert command._assistant(command.Options(**drafter), load(tiny), tmp_path / "draft") is None


@pytest.mark.heavy
def test_transformers_gives_the_same_tokens(tiny):
    """Rows of uneven length, one of which ends early."""
    target, prompts = load(tiny), [[4, 5, 6], [7, 8, 9, 4, 5, 6, 10]]

    def answers(eos_tokens) -> list[list[int]]:
        config = GenerateConfig(capacity=64, draft_length=2)
        return speculative(target.model, target.params, None, None, config=config, eos_tokens=eos_tokens)(prompts, 12)

    ends = answers(())[0][4:5]
    expected = answers(ends)
    assert len(expected[0]) < 12
    others = transformers_contestants(tiny, assistant=tiny, eos_tokens=ends, draft_length=2, threads=2)
    assert list(others(1)) == ["transformers", "transformers, prompt lookup", "transformers, assisted"]
    for answer in others(1).values():
        assert [answer([prompt], 12)[0] for prompt in prompts] == expected
    assert list(others(2)) == ["transformers"]
    assert others(2)["transformers"](prompts, 12) == expected


def test_transformers_cannot_read_the_model(tiny, prompts, monkeypatch, capsys):
    transformers = pytest.importorskip("transformers")

    def refuse(*args, **options):
        raise ValueError("unknown shape")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", refuse)
    assert bench("--target", tiny, "--prompt-file", prompts) == 2
    assert "transformers cannot load it (unknown shape); leave it out with --no-transformers" in capsys.readouterr().err


def test_transformers_is_not_installed(tiny, prompts, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert bench("--target", tiny, "--prompt-file", prompts) == 2
    assert "torch is not installed; run pip install 'specdec-jax[bench]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--repeats 0", "repeats is 0; expected >= 1"),
        ("--threads 0", "threads is 0; expected >= 1"),
        ("--draft none", "draft is none; expected a drafter"),
        ("--batches 2 0", "batches is (2, 0); expected at least one number, and all >= 1"),
        ("--fixed 0", "fixed is (0,); expected at least one number, and all >= 1"),
        ("--random-draft", "draft is ngram, which has no weights; expected another drafter"),
        ("--picture speed.jpeg", "expected a name that ends in one of .png, .svg, .pdf"),
        ("--draft-length 0", "draft_length is 0; expected an integer from 1"),
    ],
)
def test_bad_options(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", *line.split()])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_bad_prompt(tiny, write_lines, capsys):
    assert bench("--target", tiny, "--prompt-file", write_lines("no json"), "--no-transformers") == 2
    assert ":1: the line is not JSON" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written(tiny, prompts, tmp_path, capsys):
    assert bench("--target", tiny, "--prompt-file", prompts, "--picture", tmp_path / "none" / "speed.png") == 2
    assert "expected a file in a folder that exists" in capsys.readouterr().err

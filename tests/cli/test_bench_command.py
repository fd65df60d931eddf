"""``specdec bench`` on a tiny model."""

import json
import os
import sys

import pytest

from specdec_jax.cli import main

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture
def prompts(write_lines):
    return write_lines({"messages": [{"role": "user", "content": "a b c"}]}, {"prompt": "d e"})


@pytest.fixture(autouse=True)
def threads_stay(monkeypatch):
    """The command binds its process to as many cores as it shall use; the tests go on with all."""
    if hasattr(os, "sched_setaffinity"):
        monkeypatch.setattr(os, "sched_setaffinity", lambda *args: None)


SMALL = ["--capacity", "64", "--max-new-tokens", "12", "--repeats", "1", "--draft-length", "2"]


def bench(*args) -> int:
    return main(["bench", *SMALL, *map(str, args)])


def test_a_table_and_one_line_of_json(tiny, prompts, capsys):
    assert bench("--target", tiny, "--prompt-file", prompts, "--draft", tiny, "--no-transformers") == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert "tokens/s" in out
    assert found["prompts"] == 2
    assert len(found["contestants"]) == 2
    assert all(entry["equal"] == 1.0 for entry in found["contestants"].values())
    assert found["second_call_traces"] == 0
    assert found["metrics"]["acceptance_rate"] > 0.5  # drafted by itself
    assert found["round"]["specdec_jax, tiny"]["draft_seconds"] > 0


@pytest.mark.heavy
def test_transformers_gives_the_same_tokens(tiny, prompts, capsys):
    assert bench("--target", tiny, "--prompt-file", prompts) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(found["contestants"])[:2] == ["transformers", "transformers, prompt lookup"]
    assert all(entry["equal"] == 1.0 for entry in found["contestants"].values())
    assert found["against"]["transformers"] > 0


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
        ("--draft-length 0", "draft_length is 0; expected an integer >= 1"),
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

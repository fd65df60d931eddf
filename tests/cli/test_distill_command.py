"""``specdec distill``: from a directory and some texts to what --draft takes."""

import json

import pytest

from specdec_jax.cli import main

SMALL = [
    *("--training.steps", "6", "--training.batch", "2", "--training.evaluate-every", "3", "--training.warmup", "1"),
    *("--text.tokens", "40", "--text.rows", "4", "--text.length", "24", "--text.held-out", "0.3"),
    *("--max-new-tokens", "6", "--draft-length", "2"),
]
OWN = {
    "head": ["--head.draft-vocab-size", "12", "--head.steps", "2"],
    "model": ["--student", "model", "--model.count", "1"],
}


@pytest.fixture
def learned(write_lines):
    """Texts to learn from."""
    words = ["the cat sat", "on the mat", "a dog ran", "the dog sat on a mat", "the cat ran on"]
    return write_lines(*({"text": f"{words[i % 5]} {words[(i // 5) % 5]}"} for i in range(25)), name="texts.jsonl")


pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.mark.heavy
@pytest.mark.parametrize("student", ["head", "model"])
def test_a_drafter_is_made_measured_and_used(student, tiny, tmp_path, learned, write_lines, capsys):
    questions = write_lines({"prompt": "the cat", "category": "cats"}, {"prompt": "a dog", "category": "dogs"})
    out = tmp_path / "mine"
    made = [
        "distill",
        str(out),
        "--target",
        str(tiny),
        *OWN[student],
        "--text.file",
        str(learned),
    ]
    assert main([*made, *SMALL, "--questions", str(questions), "--temperatures", "0"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["held_out"]["step"] in (0, 3, 6)
    assert found["measured"][0]["by_category"].keys() == {"cats", "dogs"}
    card = (out / "drafter" / "README.md").read_text()
    assert "In generation greedily, 2 questions" in card
    assert (out / "drafter" / "curves.svg").exists()
    asked = ["generate", "the cat", "--target", str(tiny), "--format", "jsonl", "--rule", "coupled", "--capacity", "32"]
    said = []
    for draft in (str(out / "drafter"), "none"):
        assert main([*asked, "--draft", draft, "--max-new-tokens", "12"]) == 0
        said.append(json.loads(capsys.readouterr().out)["token_ids"])
    assert said[0] == said[1]


def test_a_fault_is_told_before_anything_is_made(tiny, tmp_path, write_lines, capsys):
    bad = write_lines({"text": "the cat"}, {"nothing": 1}, name="texts.jsonl")
    assert main(["distill", str(tmp_path / "a"), "--target", str(tiny), "--text.file", str(bad), *SMALL]) == 2
    assert "texts.jsonl:2 has no text" in capsys.readouterr().err
    assert main(["distill", str(tmp_path / "a"), "--target", str(tiny), "--devices", "99", *SMALL]) == 2
    assert "devices is 99, but there" in capsys.readouterr().err
    questions = write_lines({"prompt": ""})
    assert main(["distill", str(tmp_path / "a"), "--target", str(tiny), "--questions", str(questions), *SMALL]) == 2
    assert "prompts.jsonl:1: prompt is empty" in capsys.readouterr().err
    assert not (tmp_path / "a" / "drafter").exists()


@pytest.mark.heavy
def test_another_run_in_the_same_directory(tiny, tmp_path, learned, capsys):
    made = ["distill", str(tmp_path / "mine"), "--target", str(tiny), "--text.file", str(learned), *SMALL, *OWN["head"]]
    assert main(made) == 0
    assert main([*made, "--loss.name", "hybrid"]) == 2
    assert "holds another run: loss.name was 'forward_kl' and is now 'hybrid'" in capsys.readouterr().err

"""``specdec distill``: from a directory and some texts to what --draft takes."""

import json
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec_jax.cli import distill, main
from specdec_jax.models import tensor_files
from specdec_jax.training.checkpoints import alone
from specdec_jax.training.errors import TrainingError

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
    assert "Before training: acceptance" in card
    assert found["held_out_before"]["alpha"]
    assert "That text is from a file and not the target's own" in card
    assert "predicted_speedup" not in found
    assert (out / "drafter" / "curves.svg").exists()
    command = shlex.split(next(line for line in card.splitlines() if line.startswith("    specdec ")))
    assert main([*command[1:], "--max-new-tokens", "2"]) == 0, "the card's command works as it stands"
    capsys.readouterr()
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


@pytest.mark.heavy
def test_a_finished_run_that_is_started_again(tiny, tmp_path, learned, write_lines, capsys, monkeypatch):
    """Nothing is measured twice, edits of the card stay, and nobody else comes in until all is written."""
    questions = write_lines({"prompt": "the cat"})
    place = tmp_path / "mine" / "drafter"
    made = ["distill", str(place.parent), "--target", str(tiny), "--text.file", str(learned), *SMALL, *OWN["head"]]
    measure = [*made, "--questions", str(questions), "--temperatures", "0", "1"]
    calls: list[float] = []

    def in_generation(*_, temperature, progress, **__):
        if not calls:
            assert "measured" not in json.loads((place / "record.json").read_text()), "it is of use already"
            with ThreadPoolExecutor(1) as another, pytest.raises(TrainingError, match="another process trains in"):
                another.submit(alone(place.parent / "work").__enter__).result()
        calls.append(temperature)
        progress(1, 1)
        if len(calls) == 4:
            raise OSError("No space left on device")
        return {
            "temperature": temperature,
            "questions": 1,
            "max_new_tokens": 6,
            "draft_length": 2,
            "block_efficiency": 1.5,
            "speedup": 1.25,
            "by_category": {},
        }

    monkeypatch.setattr(distill, "in_generation", in_generation)
    monkeypatch.setattr(distill, "_cost", lambda *_: {"draft_step": 0.1, "verify": 1.2})
    assert main(measure) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert main(measure) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["measured"]) == 2
    assert calls == [0.0, 1.0, 0.0, 1.0, 1.0], "before and after; only what had failed again"
    assert "1.25 times as fast" in (place / "README.md").read_text()

    (place / "README.md").write_text("What I say of it.")
    (place / "my_notes.txt").write_text("precious")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in place.iterdir()}
    count = len(calls)
    for again in (made, measure):
        assert main(again) == 0
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in place.iterdir()} == before
    assert len(calls) == count


@pytest.mark.heavy
@pytest.mark.parametrize("student", ["head", "model"])
def test_a_full_disk_is_told(student, tiny, tmp_path, learned, capsys, monkeypatch):
    """And started again with room, the run is done."""
    made = [
        "distill",
        str(tmp_path / "mine"),
        "--target",
        str(tiny),
        "--text.file",
        str(learned),
        *SMALL,
        *OWN[student],
    ]
    whole = tensor_files.save_file

    def full(tensors, path, **how):
        if "before" not in str(path):
            raise tensor_files.SafetensorError("No space left on device")
        whole(tensors, path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(tensor_files, "save_file", full)
        assert main(made) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["work"]
    assert main(made) == 0
    (tmp_path / "mine" / "work" / "log.jsonl").unlink()
    for path in (tmp_path / "mine" / "drafter").iterdir():
        path.unlink()
    assert main(made) == 0, "what the log said is measured again"
    assert "acceptance" in (tmp_path / "mine" / "drafter" / "README.md").read_text()


def test_a_directory_of_somebody_else_is_told_before_anything_is_made(tiny, tmp_path, learned, capsys):
    out = tmp_path / "mine"
    (out / "drafter").mkdir(parents=True)
    (out / "drafter" / "my_notes.txt").write_text("precious")
    made = ["distill", str(out), "--target", str(tiny), "--text.file", str(learned), *SMALL, *OWN["head"]]
    assert main(made) == 2
    assert "drafter is not of this run: it has no record.json" in capsys.readouterr().err
    assert [path.name for path in (out / "drafter").iterdir()] == ["my_notes.txt"]
    assert [path.name for path in (out / "work").iterdir()] == ["lock"]


def test_answers_are_given_the_room_that_they_are_measured_in(tiny, tmp_path, write_lines, capsys, monkeypatch):
    """The target reads 256 tokens."""
    seen = []

    def distil(*_, **__):
        raise TrainingError("that far")

    def config_of(options, target, found=distill._questions):
        asked, config = found(options, target)
        seen.append(config.capacity)
        return asked, config

    monkeypatch.setattr(distill, "distil", distil)
    monkeypatch.setattr(distill, "_questions", config_of)
    questions = write_lines({"prompt": "the cat"}, {"prompt": "a dog on the mat"})
    asked = ["distill", str(tmp_path / "a"), "--target", str(tiny), "--questions", str(questions)]
    assert main([*asked, "--max-new-tokens", "300"]) == 2
    assert "prompts.jsonl:2: the question has" in (said := capsys.readouterr().err)
    assert "max_new_tokens is 300, but the target reads 256 tokens in all; expected no more" in said
    assert main([*asked, "--max-new-tokens", "100"]) == 2
    assert "that far" in capsys.readouterr().err
    assert seen == [512]
    with pytest.raises(SystemExit):
        main([*asked, "--temperatures"])
    assert "temperatures has no number; expected at least one" in capsys.readouterr().err

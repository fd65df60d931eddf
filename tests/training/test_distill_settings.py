"""What cannot work is said before anything is written, and what lies there is used only where it is the same."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import jax
import pytest

from specdec_jax.training import data
from specdec_jax.training.checkpoints import alone
from specdec_jax.training.distill import distil
from specdec_jax.training.errors import TrainingError
from specdec_jax.training.loop import TrainConfig
from specdec_jax.training.samples import DataError, Sample
from specdec_jax.training.settings import HeadConfig, LossConfig, ModelConfig, TextConfig
from specdec_jax.training.texts import gather

TEXT = TextConfig(tokens=600, rows=16, length=32, max_tokens=20, held_out=0.2)
TRAINING = TrainConfig(steps=30, batch=4, learning_rate=3e-3, warmup=3, evaluate_every=10)
HEAD = HeadConfig(draft_vocab_size=20, steps=2, storage="float32")


def gathered(target, folder, **changes):
    """Text for no tokens at all: what is to be made is written down, and nothing else."""
    how = {"tokens": 0, "key": jax.random.key(0), "rows": 16, "temperatures": (0.0, 1.0)}
    return data.gather(folder, target, **how | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperatures": (0.5,)}, r"holds text that was made otherwise: temperatures was \[0.0, 1.0\] and is now"),
        ({"capacity": 99}, r"holds text that was made otherwise: capacity was 384 and is now 99"),
        ({"rows": 8}, r"holds text that was made otherwise: rows was 16 and is now 8"),
        ({"key": jax.random.key(1)}, r"holds text that was made otherwise: key was \[0, 0\] and is now \[0, 1\]"),
        ({"asked": [[1, 5]]}, r"holds text that was made otherwise: asked was None and is now"),
    ],
)
def test_text_that_was_made_otherwise_is_not_used_again(changes, message, tiny_target, tmp_path):
    """Such as by a run that was stopped while it wrote."""
    for _ in range(2):
        assert gathered(tiny_target, tmp_path) == []
    with pytest.raises(DataError, match=message):
        gathered(tiny_target, tmp_path, **changes)
    with pytest.raises(DataError, match="holds text that was made otherwise: target"):
        gathered(tiny_target._replace(name="another"), tmp_path)


def test_a_full_disk_is_told_with_its_path(tiny_target, tmp_path, monkeypatch):
    """And started again with room, the text is written."""

    def full(path, batch):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(data, "self_prompted", lambda *_, **__: [Sample([1], [5, 0], 0.0)])
    with monkeypatch.context() as patch:
        patch.setattr(data, "write_samples", full)
        with pytest.raises(OSError, match=r"No space left on device; .* make room and start the same .*000000.jsonl"):
            gathered(tiny_target, tmp_path, tokens=2)
    assert [path.name for path in tmp_path.iterdir()] == ["made.json"]
    assert len(gathered(tiny_target, tmp_path, tokens=2)) == 1


def test_text_that_other_weights_wrote_is_not_the_targets_own(tiny_target, tmp_path):
    """Such as those of a model that was trained on under the same name."""
    told: list[str] = []
    gathered(tiny_target, tmp_path, tell=told.append)
    other = tiny_target._replace(params=jax.tree.map(lambda leaf: 1.1 * leaf, tiny_target.params))
    with pytest.raises(DataError, match=r"text that other weights of tiny wrote; .* or delete that folder"):
        gathered(other, tmp_path)
    assert told == []
    made = json.loads((tmp_path / "made.json").read_text())
    del made["weights"]
    (tmp_path / "made.json").write_text(json.dumps(made))
    assert gathered(other, tmp_path, tell=told.append) == [], "nobody says which weights wrote it"
    assert len(told) == 1
    assert "does not say which weights of tiny wrote the text there" in told[0]


def test_prompts_that_leave_no_room_are_told_of(tiny_target, tmp_path, monkeypatch):
    path, told, given = tmp_path / "prompts.jsonl", [], []
    path.write_text("".join(json.dumps({"prompt": "b " * count}) + "\n" for count in (1, 40, 20)))
    monkeypatch.setattr(data, "gather", lambda *args, asked, **how: given.extend(asked) or [])
    gather(tiny_target, TextConfig(file=path, capacity=30), tmp_path, seed=0, tell=lambda *one: told.append(one))
    assert len(given) == 3
    why = "they have no token, or no room for an answer within 30 tokens"
    assert told == [(f"1 of 3 prompts are left out: {why}", None)]


def test_text_of_which_nobody_says_how_it_was_made(tiny_target, tmp_path):
    (tmp_path / "000000.jsonl").touch()
    with pytest.raises(DataError, match=r"holds text, but no made\.json that says how it was made"):
        gathered(tiny_target, tmp_path)


@pytest.mark.parametrize(
    ("student", "text", "message"),
    [
        (HEAD, {"fresh": 0.5, "fresh_from": "student"}, "a feature head cannot write text without its target"),
        (HEAD, {"fresh": 0.3}, "fresh is 0.3 of a batch of 4, which is 1.2 rows; expected whole rows"),
        (ModelConfig(layers=(0, 9)), {}, r"the layers are \[0, 9\]; expected some of 0 to 2"),
        (ModelConfig(layers=(0,), start="x"), {}, "got layers and start for the draft model; expected one of them"),
        (ModelConfig(draft_vocab_size=99), {}, "the draft vocabulary has 99 ids; expected 1 to 29"),
        (ModelConfig(start="no/such/model"), {}, "no/such/model"),
        (
            dataclasses.replace(HEAD, reads=(0, 3)),
            {},
            r"reads are \[0, 3\], but tiny has 3 layers; expected some of 0 to 2",
        ),
        (dataclasses.replace(HEAD, reads=(-1,)), {}, r"reads are \[-1\], but tiny has 3 layers"),
        (dataclasses.replace(HEAD, reads=(2, 0, 2)), {}, r"reads are \[2, 0, 2\], .* each once"),
        (HEAD, {"length": 65}, "length is 65, but tiny has 64 positions; expected at most that many tokens in a row"),
        (ModelConfig(), {"length": 65}, "length is 65, but tiny has 64 positions"),
    ],
)
def test_what_cannot_work_is_said_before_text_is_written(student, text, message, tiny_target, tmp_path):
    with pytest.raises(ValueError, match=message):
        distil(
            tiny_target,
            tmp_path,
            student,
            text=dataclasses.replace(TEXT, **text),
            loss=LossConfig(),
            training=TRAINING,
        )
    assert not (tmp_path / "work" / "text").exists()


def test_settings_out_of_range():
    for make, message in (
        (lambda: HeadConfig(steps=0), "steps is 0; expected at least 1"),
        (lambda: HeadConfig(decay=float("nan")), "decay is nan; expected more than 0"),
        (lambda: ModelConfig(count=0), "count is 0; expected at least 1"),
        (lambda: LossConfig(beta=1.0), "beta is 1.0; expected 0 < beta < 1"),
        (lambda: LossConfig(beta=float("nan")), "beta is nan; expected 0 < beta < 1"),
        (lambda: LossConfig(eta=-5.0), "eta is -5.0; expected a number >= 0"),
        (lambda: LossConfig(eta=float("nan")), "eta is nan; expected a number >= 0"),
        (lambda: TextConfig(max_tokens=0), "max_tokens is 0; expected at least 1"),
        (lambda: TrainConfig(seed=2**32), "seed is 4294967296; expected less than 2\\*\\*32"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_one_process_trains_in_a_directory(tmp_path):
    def enter():
        with alone(tmp_path):
            pass

    refused = pytest.raises(TrainingError, match=r"another process trains in .*; wait for it or name another")
    with alone(tmp_path), ThreadPoolExecutor(1) as another:
        enter()  # who is in it already
        with refused:
            another.submit(enter).result()
    enter()

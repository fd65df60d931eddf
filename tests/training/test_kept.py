"""The drafter of a run: nothing that it did not make is lost, and what it made appears whole."""

import json
from typing import Any

import jax.numpy as jnp
import pytest
from safetensors import SafetensorError

from specdec_jax.models import tensor_files
from specdec_jax.models.new_directory import replaced_directory
from specdec_jax.training import kept
from specdec_jax.training.distill import _measured
from specdec_jax.training.errors import TrainingError
from specdec_jax.training.loop import Run, TrainConfig, new_state
from specdec_jax.training.measurements import Measurements
from specdec_jax.training.students import Measured, Student

SETTINGS = {"loss": {"name": "hybrid"}, "training": {"steps": 4}}
RECORD = {
    "name": "mine",
    "kind": "feature head",
    "model": "tiny",
    "target": "tiny",
    "directory": "mine/drafter",
    "held_out": {"step": 4, "alpha": [0.4, 0.3], "block_efficiency": 1.52},
    "from_target": True,
    "tokens": 190,
    "source": "the target's answers to its own questions",
    "settings": SETTINGS,
}


def files(place):
    return {path.name: path.read_text() for path in place.iterdir()}


def test_what_is_not_the_runs_own_is_refused(tmp_path):
    place = tmp_path / "drafter"
    kept.check_own(place, SETTINGS)
    place.mkdir()
    kept.check_own(place, SETTINGS)
    (place / "my_notes.txt").write_text("precious")
    with pytest.raises(TrainingError, match=r"is not of this run: it has no record.json .* so move it away"):
        kept.check_own(place, SETTINGS)
    kept.replace(place, RECORD)
    kept.check_own(place, {"loss": SETTINGS["loss"]})
    with pytest.raises(TrainingError, match=r"is not of this run: loss.name was 'hybrid' and is now 'forward_kl'"):
        kept.check_own(place, {"loss": {"name": "forward_kl"}})
    kept.replace(place, RECORD | {"held_out": RECORD["held_out"] | {"step": 0}})
    kept.check_own(place, {"loss": {"name": "forward_kl"}})  # it has learned nothing that could be lost
    (tmp_path / ".drafter.partial").mkdir()
    (tmp_path / ".drafter.partial" / "mine").write_text("precious")
    with pytest.raises(FileExistsError, match=r"\.drafter\.partial is in the way and was not made by specdec"):
        kept.check_own(place, SETTINGS)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(TrainingError, match="is not of this run"):
        kept.check_own(tmp_path / "file", SETTINGS)


def test_other_files_and_an_edited_card_stay(tmp_path):
    place = tmp_path / "drafter"
    kept.replace(place, RECORD, lambda inside: (inside / "weights").write_text("old"))
    assert "acceptance 0.400, 0.300 for the guesses" in files(place)[kept.CARD]
    for name in ("drafter.old", "drafter.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "backup").write_text("precious")
    (place / "my_notes.txt").write_text("precious")
    (place / "more").mkdir()
    (place / "more" / "weights").write_text("precious")
    better = RECORD | {"held_out": RECORD["held_out"] | {"alpha": [0.5, 0.4]}}
    kept.replace(place, better, lambda inside: (inside / "weights").write_text("new"))
    assert (place / "my_notes.txt").read_text() == (place / "more" / "weights").read_text() == "precious"
    assert (place / "weights").read_text() == "new"
    assert "acceptance 0.500" in (place / kept.CARD).read_text()
    (place / kept.CARD).write_text("What I say of it.")
    kept.replace(place, RECORD)
    assert (place / kept.CARD).read_text() == "What I say of it."
    assert (place / "weights").read_text() == "new"
    assert kept.read_record(place) == RECORD
    (place / "record.json").write_text(json.dumps(better | {"files": ["weights"]}))
    kept.replace(place, RECORD, lambda inside: (inside / "shard-1").write_text("new"))
    assert not (place / "weights").exists(), "of another kind, which would be taken for what is there now"
    assert (place / "my_notes.txt").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drafter", "drafter.new", "drafter.old"]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path):
    place = tmp_path / "drafter"
    kept.replace(place, RECORD)
    before = files(place)

    def full(inside):
        (inside / "weights").write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        kept.replace(place, RECORD | {"tokens": 5}, full)
    assert files(place) == before
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]


def test_one_that_was_killed_between_two_names_comes_back(tmp_path):
    place, beside = tmp_path / "drafter", tmp_path / ".drafter.partial"
    kept.replace(place, RECORD)
    with replaced_directory(tmp_path / "other"):
        (tmp_path / ".other.partial").rename(beside)  # as a process leaves it that has no time to clean up
        (tmp_path / ".other.partial").mkdir()
        (tmp_path / ".other.partial" / "other").mkdir()
    place.rename(beside / "drafter.old")
    with pytest.raises(ZeroDivisionError), replaced_directory(place):
        raise ZeroDivisionError
    assert kept.read_record(place) == RECORD
    assert not beside.exists()


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError('Io(Os { code: 28, kind: StorageFull, message: "No space left on device" })')

    monkeypatch.setattr(tensor_files, "save_file", full)
    with pytest.raises(OSError, match=r"cannot write .*x.safetensors .*No space left .* with room on its disk"):
        tensor_files.write_tensors(tmp_path / "x.safetensors", {})


def test_nothing_is_measured_twice(tmp_path):
    path, made = tmp_path / "measured.jsonl", []

    def measure():
        made.append(1)
        return {"speedup": 1.5, "pair": (1, 2)}

    for _ in range(2):
        known = Measurements(path)
        assert known.get({"step": 3, "widths": (1, 2)}, measure) == {"speedup": 1.5, "pair": [1, 2]}
    assert len(made) == 1
    Measurements(path).get({"step": 4, "widths": (1, 2)}, measure)
    assert len(made) == 2
    path.write_text(path.read_text()[:-3])  # a line that was cut off is no measurement
    Measurements(path).get({"step": 4, "widths": (1, 2)}, measure)
    assert len(made) == 3
    assert [json.loads(line)["of"]["step"] for line in path.read_text().splitlines()] == [3, 4]


def test_what_was_written_with_nan_is_read_with_none(tmp_path):
    """As earlier versions wrote ratios of nothing to nothing, which JSON has no number for."""
    path = tmp_path / "measured.jsonl"
    path.write_text('{"of": {"step": 4}, "found": {"accepted_at": [0.5, NaN]}}\n')
    found = Measurements(path).get({"step": 4}, lambda: pytest.fail("it is known"))
    assert found == {"accepted_at": [0.5, None]}
    place = tmp_path / "drafter"
    kept.replace(place, RECORD)
    written = json.dumps(RECORD | {"measured": [{"acceptance_rate": float("nan")}]})
    assert "NaN" in written
    (place / kept.RECORD).write_text(written)
    assert kept.read_record(place)["measured"] == [{"acceptance_rate": None}]


def test_held_out_text_that_gives_no_number_is_an_error():
    """Where the log is lost, and the best checkpoint is measured again."""
    batch: Any = {}
    nothing = Measured(jnp.ones(1), jnp.full(1, jnp.nan), jnp.ones(1))
    student = Student(lambda *_: nothing, (1.0,))
    run = Run(student, {}, lambda *_: pytest.fail("it does not train"), lambda: iter([batch]), {})
    state = new_state({"w": jnp.zeros((2, 2))}, TrainConfig())
    with pytest.raises(TrainingError, match=r"held out, of the best checkpoint: loss \[1.0\], alpha \[nan\]; expected"):
        _measured(run, state, None)

"""The whole way on a tiny target: text, training, files that load, and text that stays the target's."""

import dataclasses
import importlib
import json
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from specdec_jax import GenerateConfig, SamplingParams, constant, draft_model, feature_head, generate, models
from specdec_jax.training.distill import distil
from specdec_jax.training.errors import TrainingError
from specdec_jax.training.loop import TrainConfig, train
from specdec_jax.training.samples import DataError
from specdec_jax.training.settings import HeadConfig, LossConfig, ModelConfig, TextConfig

TEXT = TextConfig(tokens=600, rows=16, length=32, max_tokens=20, held_out=0.2)
TRAINING = TrainConfig(steps=30, batch=4, learning_rate=3e-3, warmup=3, evaluate_every=10)
HEAD = HeadConfig(draft_vocab_size=20, steps=2, storage="float32")


def trained_head(target, folder):
    """The run that these tests share, and what it told."""
    told: list[str] = []
    made = distil(
        target,
        folder,
        HEAD,
        text=TEXT,
        loss=LossConfig(),
        training=TRAINING,
        tell=lambda what, share: told.append(what),
    )
    return made, told


@pytest.fixture(scope="module")
def head(tiny_target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("head")
    made, told = trained_head(tiny_target, folder)
    return folder, made, told


def texts(target, model, drafter, params, temperature, rule):
    prompts = np.array([[1, 5, 6, 0, 2], [1, 9, 0, 2, 0]], np.int32)
    config = GenerateConfig(capacity=40, draft_length=3, rule=rule, prefill_chunk=8)
    out = generate(
        model,
        target.params,
        drafter,
        params,
        prompts,
        [5, 4],
        key=jax.random.key(1),
        sampling=SamplingParams(temperature=temperature),
        config=config,
        max_new_tokens=24,
        eos_tokens=target.tokenizer.eos_ids,
        controller=constant(),
    )
    return out


@pytest.mark.heavy
def test_a_head_is_trained_and_drafts(head, tiny_target):
    _, made, told = head
    measured = [line["held_out"] for line in made.log if "held_out" in line]
    assert measured[-1]["loss"][0] < measured[0]["loss"][0], "it learns"
    assert made.best["block_efficiency"] == max(one["block_efficiency"] for one in measured)
    assert {line.split(":")[0] for line in told} >= {"the target writes", "the target reads the text", "held out"}
    loaded = models.load_head(made.directory)
    assert loaded.record["target"] == "tiny"
    model, params = models.head_for(loaded, tiny_target)
    seeing = tiny_target.variant(hidden_layers=loaded.config.hidden_layers)
    drafted = texts(tiny_target, seeing, feature_head(model), params, 1.0, "coupled")
    plain = texts(tiny_target, tiny_target.model, None, None, 1.0, "coupled")
    np.testing.assert_array_equal(drafted.tokens, plain.tokens)
    assert drafted.stats.accepted.sum() > 0


@pytest.mark.heavy
def test_started_again_it_goes_on(head, tiny_target):
    """Nothing is written or trained twice, and the drafter's files are the same."""
    folder, made, _ = head
    before = {path.name: path.read_bytes() for path in made.directory.iterdir()}
    again, told = trained_head(tiny_target, folder)
    assert again.log == made.log
    assert not any(what.startswith(("training", "held out", "the target reads")) for what in told)
    assert {path.name: path.read_bytes() for path in made.directory.iterdir()} == before
    assert again.record == made.record
    assert made.record["from_target"]
    assert made.record["temperatures"] == [0.0, 1.0]
    assert made.record["held_out_before"] == made.log[0]["held_out"]


@pytest.mark.heavy
def test_a_log_that_was_lost_is_measured_again(head, tiny_target, tmp_path):
    """And the drafter is stored as it is asked for."""
    folder, made, _ = head
    shutil.copytree(folder / "work", tmp_path / "work")
    (tmp_path / "work" / "log.jsonl").unlink()
    stored = dataclasses.replace(HEAD, storage="int8")
    for student in (HEAD, stored):
        again = distil(tiny_target, tmp_path, student, text=TEXT, loss=LossConfig(), training=TRAINING)
        assert again.best["step"] == made.best["step"]
        assert again.best["alpha"] == pytest.approx(made.best["alpha"], abs=1e-6)
        assert again.record["stored"] == student.storage
        settings = json.loads((again.directory / "drafter.json").read_text())
        assert settings["storage"] == student.storage


@pytest.mark.heavy
def test_a_head_that_goes_on_from_another(head, tiny_target, tmp_path):
    """It begins as good as the other ended, on the same text."""
    _, made, _ = head
    again = distil(
        tiny_target,
        tmp_path,
        dataclasses.replace(HEAD, start=str(made.directory), draft_vocab_size=7),
        text=TEXT,
        loss=LossConfig(),
        training=dataclasses.replace(TRAINING, steps=1, warmup=1, learning_rate=1e-6),
    )
    assert again.best["loss"] == pytest.approx(made.best["loss"], rel=1e-3)
    assert models.load_head(again.directory).config == models.load_head(made.directory).config
    with pytest.raises(ValueError, match=r"nothing is no feature head; expected a directory with a drafter.json"):
        distil(
            tiny_target,
            tmp_path / "b",
            dataclasses.replace(HEAD, start="nothing"),
            text=TEXT,
            loss=LossConfig(),
            training=TRAINING,
        )


@pytest.mark.heavy
def test_other_settings_are_another_run(head, tiny_target):
    folder, _, _ = head
    with pytest.raises(TrainingError, match=r"holds another run: loss.name was 'forward_kl' and is now 'hybrid'"):
        distil(tiny_target, folder, HEAD, text=TEXT, loss=LossConfig("hybrid"), training=TRAINING)
    files = sorted((folder / "work" / "text").iterdir())
    for student, text, message in (
        (dataclasses.replace(HEAD, steps=3), TEXT, "head.steps was 2 and is now 3"),
        (HEAD, dataclasses.replace(TEXT, tokens=1500), "text.tokens was 600 and is now 1500"),
    ):
        with pytest.raises(TrainingError, match=rf"holds another run: {message}\. Expected"):
            distil(tiny_target, folder, student, text=text, loss=LossConfig(), training=TRAINING)
    assert sorted((folder / "work" / "text").iterdir()) == files, "no text is written for what is refused"


@pytest.mark.heavy
def test_a_run_that_never_began_may_be_begun_otherwise(head, tiny_target, tmp_path, monkeypatch):
    """What lies there as the start is then the other's too."""
    folder, _, _ = head
    shutil.copytree(folder / "work" / "text", tmp_path / "work" / "text")

    def fails(*_, **__):
        raise TrainingError("no room")

    monkeypatch.setattr(importlib.import_module("specdec_jax.training.distill"), "train", fails)
    for reads in ((0, 2), (1,)):
        student = dataclasses.replace(HEAD, reads=reads)
        with pytest.raises(TrainingError, match="no room"):
            distil(tiny_target, tmp_path, student, text=TEXT, loss=LossConfig(), training=TRAINING)
        assert models.load_head(tmp_path / "work" / "before").config.hidden_layers == reads


@pytest.mark.heavy
def test_a_run_that_fails_leaves_the_best_that_it_reached(head, tiny_target, tmp_path, monkeypatch):
    """The start, if there was nothing better: it can be gone on from in another run."""
    folder, _, _ = head
    for name in ("text", "outputs"):
        shutil.copytree(folder / "work" / name, tmp_path / "work" / name)
    module, whole = importlib.import_module("specdec_jax.training.distill"), train

    def fails(run, params, config, directory, **how):
        def stop(line):
            if line["step"] >= 10:
                raise TrainingError("the loss of step 9 is nan")

        return whole(run, params, config, directory, mesh=how["mesh"], progress=stop)

    monkeypatch.setattr(module, "train", fails)
    with pytest.raises(TrainingError, match="the loss of step 9 is nan"):
        trained_head(tiny_target, tmp_path)
    left = models.load_head(tmp_path / "drafter")
    assert left.record["held_out"]["step"] == 0
    assert left.config == models.load_head(folder / "drafter").config


@pytest.mark.heavy
@pytest.mark.parametrize("storage", ["int8", "bfloat16", "float32"])
def test_how_a_head_is_stored(storage, head, tmp_path):
    _, made, _ = head
    whole = models.load_head(made.directory)
    models.save_head(tmp_path, whole.config, whole.params, whole.draft_ids, storage=storage, record=whole.record)
    got = models.load_head(tmp_path)
    assert got.config == whole.config
    assert got.record == whole.record
    np.testing.assert_array_equal(got.draft_ids, whole.draft_ids)
    largest = {"int8": 1 / 250, "bfloat16": 1 / 250, "float32": 0.0}[storage]
    for one, other in zip(jax.tree.leaves(got.params), jax.tree.leaves(whole.params), strict=True):
        assert np.abs(one - other).max() <= largest * np.abs(other).max()
    assert jax.tree.structure(got.params) == jax.tree.structure(whole.params)


@pytest.fixture(scope="module")
def small(tiny_target, tmp_path_factory):
    return distil(
        tiny_target,
        tmp_path_factory.mktemp("small"),
        ModelConfig(count=2, dtype="float32"),
        text=TEXT,
        loss=LossConfig("total_variation"),
        training=TRAINING,
    )


@pytest.mark.heavy
def test_transformers_takes_a_draft_model_as_its_assistant(small, tiny_target, tmp_path):
    """The text is the target's own, in fewer passes of it."""
    models.save(tmp_path / "target", tiny_target.config, tiny_target.params, tokenizer=tiny_target.tokenizer)
    target: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    assistant: Any = AutoModelForCausalLM.from_pretrained(small.directory)
    passes = []
    target.register_forward_hook(lambda *_: passes.append(1))
    ids = torch.tensor([[1, 5, 6, 0, 2]])
    options = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    plain = target.generate(ids, **options)
    alone = len(passes)
    passes.clear()
    assisted = target.generate(ids, assistant_model=assistant, **options)
    assert assisted.tolist() == plain.tolist()
    assert len(passes) < alone


def test_a_draft_model_is_trained_and_drafts(small, tiny_target):
    made = small
    measured = [line["held_out"] for line in made.log if "held_out" in line]
    assert measured[-1]["alpha"][0] > measured[0]["alpha"][0]
    draft = models.pair(tiny_target, models.load(made.directory))
    assert draft.config.num_layers == 2
    drafted = texts(tiny_target, tiny_target.model, draft_model(draft.model), draft.params, 1.0, "coupled")
    plain = texts(tiny_target, tiny_target.model, None, None, 1.0, "coupled")
    np.testing.assert_array_equal(drafted.tokens, plain.tokens)
    assert drafted.stats.accepted.sum() > 0


@pytest.mark.heavy
def test_a_draft_model_with_a_vocabulary_of_its_own(tiny_target, tmp_path):
    """It guesses these tokens alone, as any model does when its other logits are -inf, and the text is the target's."""
    made = distil(
        tiny_target,
        tmp_path,
        ModelConfig(count=2, dtype="float32", draft_vocab_size=9),
        text=TEXT,
        loss=LossConfig(),
        training=dataclasses.replace(TRAINING, steps=4, evaluate_every=4),
    )
    whole = models.load(made.directory)
    draft = models.load_draft(made.directory, tiny_target)
    fed, at = jnp.array([[5, 6, 7]], jnp.int32), jnp.zeros(1, jnp.int32)
    logits, other = (
        np.asarray(jax.jit(one.model.apply)(one.params, fed, one.model.init_cache(1, 8), at)[0])
        for one in (draft, whole)
    )
    known = np.isfinite(logits)
    assert (known.sum(-1) == 9).all()
    np.testing.assert_allclose(logits[known], other[known], rtol=1e-5)
    drafted = texts(tiny_target, tiny_target.model, draft_model(draft.model), draft.params, 1.0, "coupled")
    plain = texts(tiny_target, tiny_target.model, None, None, 1.0, "coupled")
    np.testing.assert_array_equal(drafted.tokens, plain.tokens)
    for ids in ([3, 2], [], [0, 29], "all", [0.5]):
        (made.directory / "draft_vocabulary.json").write_text(json.dumps({"ids": ids}))
        with pytest.raises(models.LoadError, match="has no list of ascending token ids from 0 to 28"):
            models.load_draft(made.directory, tiny_target)


@pytest.mark.heavy
@pytest.mark.parametrize("writer", ["target", "student"])
def test_fresh_texts(writer, tiny_target, tmp_path):
    """They are sampled in every phase, from the student as it is then, and a run that is stopped ends the same."""
    text = dataclasses.replace(TEXT, fresh=0.5, fresh_from=writer)
    training = dataclasses.replace(TRAINING, steps=20)

    def run(folder, tell=lambda what, share: None):
        return distil(
            tiny_target,
            folder,
            ModelConfig(count=1, dtype="float32"),
            text=text,
            loss=LossConfig(),
            training=training,
            tell=tell,
        )

    class StopHereError(Exception):
        pass

    def stop(what, share):
        if what.startswith("training") and share is not None and share > 0.7:
            raise StopHereError

    whole = run(tmp_path / "whole")
    with pytest.raises(StopHereError):
        run(tmp_path / "stopped", stop)
    again = run(tmp_path / "stopped")
    for name in ("model.safetensors", "config.json"):
        assert (again.directory / name).read_bytes() == (whole.directory / name).read_bytes()


@pytest.mark.heavy
def test_files_of_texts_and_prompts(tiny_target, tmp_path):
    texts_file, prompts_file = tmp_path / "texts.jsonl", tmp_path / "prompts.jsonl"
    texts_file.write_text("".join(json.dumps({"text": f"w{5 + i % 20} w{6 + i % 9} w7"}) + "\n" for i in range(40)))
    prompts_file.write_text("".join(json.dumps({"prompt": f"w{5 + i % 20} w{6 + i}"}) + "\n" for i in range(20)))
    training = dataclasses.replace(TRAINING, steps=2, batch=2, evaluate_every=2)
    for file in (texts_file, prompts_file):
        made = distil(
            tiny_target,
            tmp_path / file.stem,
            HEAD,
            text=dataclasses.replace(TEXT, file=file),
            loss=LossConfig(),
            training=training,
        )
        assert made.log[-1]["step"] == 2
    with pytest.raises(DataError, match=r"cannot read .*missing.jsonl"):
        distil(
            tiny_target,
            tmp_path / "missing",
            HEAD,
            text=dataclasses.replace(TEXT, file=tmp_path / "missing.jsonl"),
            loss=LossConfig(),
            training=training,
        )

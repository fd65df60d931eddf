"""What a run is known by changes with all that it is made of, whatever the names of that are."""

import dataclasses
import importlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

from specdec_jax import models
from specdec_jax.models.feature_head import init_head_params
from specdec_jax.training.checkpoints import Checkpoints, check_same_run
from specdec_jax.training.distill import distil
from specdec_jax.training.errors import TrainingError
from specdec_jax.training.loop import TrainConfig
from specdec_jax.training.pupils import head_config, head_pupil, model_pupil
from specdec_jax.training.samples import Sample
from specdec_jax.training.settings import HeadConfig, LossConfig, ModelConfig, TextConfig
from specdec_jax.training.start import check_start
from specdec_jax.training.teacher import as_teacher, head_rows
from specdec_jax.training.texts import Texts, texts

_NONE: Any = None


def found(*samples: Sample) -> Texts:
    """The text of a run as far as a drafter's beginning reads it."""
    return Texts(list(samples), _NONE, _NONE, "")


def test_a_head_to_go_on_from_is_known_by_what_it_holds(tiny_target, tmp_path):
    """It may be trained anew in its place while a run that began from it waits to go on."""
    settings = HeadConfig(draft_vocab_size=6, start=str(tmp_path / "first"))
    config = head_config(tiny_target, settings, (0, 2))

    def identity(seed, ids):
        ids = np.asarray(ids, np.int32)
        params = init_head_params(config, jax.random.key(seed), ids, head_rows(tiny_target.params))
        models.save_head(tmp_path / "first", config, params, ids, storage="float32")
        return head_pupil(tiny_target, settings, found(), LossConfig(), seed=0, dtype=jnp.float32).identity

    was = identity(0, [5, 6, 7, 8, 9, 10])
    assert identity(0, [5, 6, 7, 8, 9, 10]) == was
    assert identity(1, [5, 6, 7, 8, 9, 10]) != was, "other parameters"
    assert identity(0, [5, 6, 7, 8, 9, 11]) != was, "other tokens"


def saved(target, place, **changes):
    """Half of the target's parameters, in a directory."""
    config = dataclasses.replace(target.config, **changes)
    params = jax.tree.map(lambda leaf: 0.5 * leaf, target.params)
    models.save(place, config, params, tokenizer=target.tokenizer)
    return params, config


def test_a_model_to_start_from_is_known_by_what_it_holds(tiny_target, tmp_path):
    """Of its path the last part is in the record, and that may be any model's."""
    identities = []
    for name, scale in (("a", 1.0), ("b", 1.5), ("c", 1.0)):
        place = tmp_path / name / "model"
        params, config = saved(tiny_target, tmp_path / name / "other")
        params = jax.tree.map(lambda leaf, scale=scale: scale * leaf, params)
        models.save(place, config, params, tokenizer=tiny_target.tokenizer)
        made = model_pupil(tiny_target, ModelConfig(start=str(place)), found(), LossConfig(), seed=0, dtype=jnp.float32)
        identities.append(made.identity)
    assert identities[0] == identities[2]
    assert identities[0] != identities[1]


def test_a_draft_vocabulary_is_known_by_its_tokens(tiny_target):
    def identity(samples):
        text, loss = found(*samples), LossConfig()
        head, model = HeadConfig(draft_vocab_size=3), ModelConfig(draft_vocab_size=3)
        yield head_pupil(tiny_target, head, text, loss, seed=0, dtype=jnp.float32).identity
        yield model_pupil(tiny_target, model, text, loss, seed=0, dtype=jnp.float32).identity

    one, other = (list(identity([Sample([], ids)])) for ids in ([5, 6, 7], [5, 6, 8]))
    assert all(a != b for a, b in zip(one, other, strict=True))


def test_what_is_no_token_is_not_learned(tiny_target):
    """A target may have logits that are none, past its tokens and between them."""
    words = {word: i for word, i in tiny_target.tokenizer.backend.get_vocab().items() if i not in (7, 27, 28)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    padded = tiny_target._replace(tokenizer=models.Tokenizer(backend, eos_ids=[0]))
    made = model_pupil(padded, ModelConfig(), found(), LossConfig(), seed=0, dtype=jnp.float32)
    whole = model_pupil(tiny_target, ModelConfig(), found(), LossConfig(), seed=0, dtype=jnp.float32)
    rows = head_rows(tiny_target.params)
    kept = np.setdiff1d(np.arange(len(rows)), (7, 27, 28))
    np.testing.assert_array_equal(made.frozen["teacher_head"], rows[kept])
    np.testing.assert_array_equal(whole.frozen["teacher_head"], rows)
    assert made.writer is not None
    writer = made.writer(made.params)
    cache, zero = writer.model.init_cache(1, 8), jnp.zeros(1, jnp.int32)
    logits, _, _ = writer.model.apply(writer.params, jnp.asarray([[5]]), cache, zero)
    np.testing.assert_array_equal(np.flatnonzero(np.isneginf(logits[0, 0])), [7, 27, 28])


def test_checkpoints_of_a_run_that_nobody_knows(tmp_path):
    with Checkpoints(tmp_path, {"a": 1}) as checkpoints:
        checkpoints.save(5, {"x": jnp.zeros(2)}, 1.0)
    (tmp_path / "run.json").unlink()
    for known in (lambda: Checkpoints(tmp_path, {"a": 2}), lambda: check_same_run(tmp_path, {"a": 2})):
        with pytest.raises(TrainingError, match=r"holds checkpoints, but .*run.json is missing, which says of what"):
            known()
    (tmp_path / "run.json").write_text("[]")
    for known in (lambda: Checkpoints(tmp_path, {"a": 2}), lambda: check_same_run(tmp_path, {"a": 2})):
        with pytest.raises(TrainingError, match=r"cannot use .*run.json \(it holds no object\)"):
            known()


def test_the_start_of_a_run_that_nobody_knows_is_not_gone_on_from(tmp_path):
    with Checkpoints(tmp_path, {"a": 1}) as checkpoints:
        checkpoints.save(0, {"x": jnp.ones(2)}, 1.0)
    (tmp_path / "run.json").unlink()
    with Checkpoints(tmp_path, {"a": 2}) as checkpoints:
        np.testing.assert_array_equal(checkpoints.restore({"x": jnp.zeros(2)})["x"], 0)


@pytest.mark.parametrize("kind", ["head", "start", "config"])
def test_what_was_changed_under_its_name_is_refused_before_text_is_written(kind, tiny_target, tmp_path, monkeypatch):
    """A run goes on from what it began with, or not at all."""
    place, out = tmp_path / "first", tmp_path / "run"
    head = HeadConfig(draft_vocab_size=6, start=str(place))
    config = head_config(tiny_target, head, (0, 2))
    ids = np.arange(5, 11, dtype=np.int32)

    def put(scale):
        shutil.rmtree(place, ignore_errors=True)
        if kind == "head":
            params = init_head_params(config, jax.random.key(0), ids, head_rows(tiny_target.params))
            params = jax.tree.map(lambda leaf: scale * leaf, params)
            models.save_head(place, config, params, ids, storage="float32")
        else:
            params = jax.tree.map(lambda leaf: scale * leaf, tiny_target.params)
            shape = dataclasses.replace(tiny_target.config, norm_eps=1e-5 * scale)
            models.save(
                place, shape if kind == "config" else tiny_target.config, params, tokenizer=tiny_target.tokenizer
            )

    student = {
        "head": head,
        "start": ModelConfig(start=str(place)),
        "config": ModelConfig(config=place / "config.json"),
    }

    class ReachedTextError(Exception):
        pass

    def written(*_, **__):
        raise ReachedTextError

    module = importlib.import_module("specdec_jax.training.distill")
    monkeypatch.setattr(module, "texts", written)
    text, training = TextConfig(length=8), TrainConfig(steps=2, batch=1)

    def start():
        distil(tiny_target, out, student[kind], text=text, loss=LossConfig(), training=training)

    put(1.0)
    with pytest.raises(ReachedTextError):
        start()
    pupil = (head_pupil if kind == "head" else model_pupil)(
        tiny_target, student[kind], found(), LossConfig(), seed=0, dtype=jnp.float32
    )
    told = {
        "teacher": as_teacher(tiny_target, (0, 2) if kind == "head" else ()).identity,
        **student[kind].told(),
        **text.told(),
        "loss": dataclasses.asdict(LossConfig()),
        "dtype": "float32",
        "read": "",
        **pupil.identity,
    }
    with Checkpoints(out / "work", {**told, "training": dataclasses.asdict(training)}) as checkpoints:
        checkpoints.save(2, {"x": jnp.zeros(2)}, 1.0)
    with pytest.raises(ReachedTextError):
        start()
    put(1.5)
    with pytest.raises(
        TrainingError, match=rf"holds another run: drafter\.{'config' if kind == 'config' else 'start'}"
    ):
        start()


def test_what_is_learned_of_a_text_is_part_of_it(tiny_target, tmp_path, monkeypatch):
    """The same tokens, with a prompt that nothing is learned of and without."""
    module = importlib.import_module("specdec_jax.training.texts")
    monkeypatch.setattr(module, "split", lambda samples, *_: (samples[:2], samples[2:]))
    digests = []
    for prompt in (0, 2):
        samples = [Sample(ids[:prompt], ids[prompt:]) for ids in ([5, 6, 7, 8], [6, 7, 8, 9], [7, 8, 9, 10])]
        monkeypatch.setattr(module, "gather", lambda *_, samples=samples, **__: samples)
        made = texts(tiny_target, as_teacher(tiny_target), TextConfig(length=8), tmp_path, seed=0)
        digests.append(made.digest)
    assert digests[0] != digests[1]


def test_only_texts_of_people_are_divided_by_their_words(tiny_target, tmp_path, monkeypatch):
    """The target's own questions are stripped, and stay on the side that their ids put them."""
    module = importlib.import_module("specdec_jax.training.texts")
    given = []

    class AskedError(Exception):
        pass

    def asked(samples, held_out, text_of):
        given.append(text_of)
        raise AskedError

    monkeypatch.setattr(module, "split", asked)
    monkeypatch.setattr(module, "gather", lambda *_, **__: [])
    for file in (tmp_path / "texts.jsonl", None):
        with pytest.raises(AskedError):
            texts(tiny_target, as_teacher(tiny_target), TextConfig(file=file), tmp_path, seed=0)
    assert given[0]([5, 6]) == "w5 w6"
    assert given[1] is None


@pytest.mark.parametrize("kind", ["config", "start"])
def test_a_draft_model_has_to_have_positions_for_the_text(kind, tiny_target, tmp_path):
    place = tmp_path / "short"
    saved(tiny_target, place, max_positions=16)
    settings = ModelConfig(config=place / "config.json") if kind == "config" else ModelConfig(start=str(place))
    check_start(tiny_target, settings, 16)
    with pytest.raises(ValueError, match=r"length is 17, but .*short.* has 16 positions"):
        check_start(tiny_target, settings, 17)


def test_a_model_to_start_from_has_to_have_the_targets_vocabulary(tiny_target, tmp_path):
    """Which is known before its weights are read."""
    place = tmp_path / "wide"
    config = dataclasses.replace(tiny_target.config, vocab_size=40)
    models.save(place, config, models.init_params(config, jax.random.key(0), dtype=jnp.float32, layers="unrolled"))
    with pytest.raises(ValueError, match=r"the logits of the target tiny are 29 wide and those of the draft wide 40"):
        check_start(tiny_target, ModelConfig(start=str(place)), 8)

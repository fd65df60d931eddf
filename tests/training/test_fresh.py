"""Fresh texts are those of their writer as it is now."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.models import text_model_from_config
from specdec_jax.training import batches
from specdec_jax.training.fresh import fresh_texts
from specdec_jax.training.packing import pack
from specdec_jax.training.pupils import model_pupil
from specdec_jax.training.samples import DataError, Sample
from specdec_jax.training.settings import LossConfig, ModelConfig, TextConfig
from specdec_jax.training.teacher import as_teacher, head_rows
from specdec_jax.training.texts import Texts

TEXT = TextConfig(tokens=100, rows=6, length=24, max_tokens=8, capacity=24, temperatures=(0.0,))


@pytest.fixture(scope="module")
def source(tiny_target):
    return as_teacher(tiny_target)


def test_a_student_writes_with_the_parameters_of_now(tiny_target, samples, source):
    """At temperature 0 each of its words is the likeliest by the parameters that it was given, and by no others."""
    nothing = batches.Corpus(pack(samples[:1], 24), None)  # pyright: ignore[reportArgumentType]
    found = Texts(samples, nothing, nothing, "")
    settings = ModelConfig(layers=(0, 2), dtype="float32")
    pupil = model_pupil(tiny_target, settings, found, LossConfig(), seed=0, dtype=jnp.float32)
    assert pupil.writer is not None
    fresh = fresh_texts(pupil.writer, source, samples, TEXT, seed=4)
    # Its layers the other way about: another model.
    layers = pupil.params["layers"]
    other = {**pupil.params, "layers": {0: layers[1], 1: layers[0]}}
    config = tiny_target.config.__class__(**{**vars(tiny_target.config), "num_layers": 2})
    model = text_model_from_config(config, dtype=jnp.float32, layers="unrolled")

    def likeliest(params, packed):
        features, _ = jax.jit(model.features)(params, packed.tokens, packed.positions, packed.segments)
        said = np.asarray(jnp.argmax(features @ head_rows(params).T, axis=-1))[:, :-1]
        return (said == packed.tokens[:, 1:])[packed.learned[:, :-1]].mean()

    for now, then in ((pupil.params, other), (other, pupil.params)):
        texts = fresh(8, now)
        assert texts.packed.learned.sum() > 20
        assert likeliest(now, texts.packed) == 1
        assert likeliest(then, texts.packed) < 0.9
        read = source.read(texts.packed.tokens, texts.packed.positions, texts.packed.segments)
        np.testing.assert_allclose(texts.outputs.features, read.features, atol=2e-3)


def test_every_phase_has_texts_of_its_own(tiny_target, samples, source):
    fresh = fresh_texts(lambda params: tiny_target, source, samples, TEXT, seed=4)
    first, again, later = (fresh(step, {}).packed.tokens for step in (0, 0, 8))
    np.testing.assert_array_equal(first, again)
    assert first.shape != later.shape or (first != later).any()


def test_without_prompts_there_is_nothing_to_answer(tiny_target, source):
    with pytest.raises(DataError, match="fresh texts need prompts to answer, and there are texts alone"):
        fresh_texts(lambda params: tiny_target, source, [Sample([], [5, 6])], TEXT, seed=0)

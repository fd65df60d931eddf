"""What a student is measured by is what its drafter would be accepted with."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once

from specdec_jax.models import text_model_from_config
from specdec_jax.models.feature_head import draft_places, feature_model, init_head_params
from specdec_jax.training import batches
from specdec_jax.training.from_layers import evenly_spaced, from_layers
from specdec_jax.training.losses import LOSS_NAMES
from specdec_jax.training.packing import draft_vocabulary, pack
from specdec_jax.training.pupils import head_config, low_middle_high
from specdec_jax.training.settings import HeadConfig
from specdec_jax.training.students import (
    draft_model_student,
    feature_head_student,
    frozen_for_head,
    frozen_for_model,
    total,
)
from specdec_jax.training.teacher import Outputs, as_teacher, head_rows

V, STEPS = 29, 3


@pytest.fixture(scope="module")
def lesson(tiny_target, samples):
    """A batch with what the teacher says about it, a head, and what the head reads."""
    source = as_teacher(tiny_target, (0, 1, 2))
    packed = pack(samples, 24)
    outputs = source.read(packed.tokens[:4], packed.positions[:4], packed.segments[:4], "float32")
    batch = batches.Corpus(packed.rows(slice(0, 4)), Outputs(*map(np.asarray, outputs))).batch(np.arange(4))
    config = head_config(tiny_target, HeadConfig(draft_vocab_size=11), (0, 1, 2))
    ids = draft_vocabulary(samples, np.arange(V), 11)
    params = init_head_params(config, jax.random.key(0), ids, head_rows(tiny_target.params))
    params = jax.tree.map(lambda leaf: 4 * leaf if leaf.ndim > 1 else leaf, params)
    places = draft_places(ids, V)
    batch = jax.tree.map(jnp.asarray, batch)
    return batch, config, ids, params, frozen_for_head(tiny_target.params, ids, places)


def softmax(logits) -> np.ndarray:
    e = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return e / e.sum()


@pytest.mark.heavy
def test_a_heads_alpha_is_that_of_its_drafter(lesson, tiny_target):
    """Every pair of every text, guessed from as the drafter guesses: true pairs, and then its own output."""
    batch, config, ids, params, frozen = lesson
    batch = jax.tree.map(np.asarray, batch)
    student = feature_head_student(config, steps=STEPS, chunk=16)
    found = jax.jit(student.measure)(params, frozen, batch)
    whole = {"head": params, "embedding": frozen["embedding"], "draft_place": frozen["draft_place"]}
    model = feature_model(config, jnp.dtype(jnp.float32))
    apply, slots = jax.jit(model.apply), 32
    alphas: list[list[float]] = [[] for _ in range(STEPS)]
    for row in range(2):
        for segment in range(1, batch.segments[row].max() + 1):
            place = np.flatnonzero(batch.segments[row] == segment)
            tokens, count = batch.tokens[row, place], len(place)
            fused = model.fuse(whole, jnp.asarray(batch.hidden[row, place])[None])
            for true in range(1, count):  # pairs 0 .. true - 1 are true ones
                cache, _ = model.init(1, slots)
                out, cache = apply(whole, _padded(fused[:, :true], 24), _ids(tokens[1 : true + 1], 24), cache, _at(0))
                feature = out[:, true - 1 : true]
                for step in range(STEPS):
                    at = true + step  # what is guessed follows this token
                    if step:
                        if at >= count:
                            break
                        feature, cache = apply(whole, feature, _ids(tokens[at : at + 1], 1), cache, _at(at - 1))
                    if batch.learned[row, place[at]]:
                        p = softmax(batch.features[row, place[at]] @ np.asarray(head_rows(tiny_target.params)).T)[ids]
                        q = softmax(model.logits(whole, feature)[0, 0])[ids]
                        alphas[step].append(np.minimum(p, q).sum())
    rest = jax.jit(student.measure)(
        params, frozen, batch._replace(learned=batch.learned & (np.arange(4) >= 2)[:, None])
    )
    np.testing.assert_array_equal(found.count - rest.count, [len(one) for one in alphas])
    np.testing.assert_allclose(found.alpha - rest.alpha, [sum(one) for one in alphas], rtol=2e-4)
    assert tiny_target.model.vocab_size == V


def _padded(x, length):
    return jnp.pad(x, ((0, 0), (0, length - x.shape[1]), (0, 0)))


def _ids(tokens, length):
    return jnp.asarray([[*map(int, tokens), *[0] * (length - len(tokens))]], jnp.int32)


def _at(slot):
    return jnp.asarray([slot], jnp.int32)


@pytest.mark.parametrize("loss", at_once(LOSS_NAMES, ["negative_log_acceptance"]))
def test_every_loss_has_a_gradient_that_lowers_it(loss, lesson):
    batch, config, _, params, frozen = lesson
    student = feature_head_student(config, steps=2, loss=loss, chunk=32)

    @jax.jit
    @jax.value_and_grad
    def value(params):
        return student.loss(params, frozen, batch)[0]

    before, gradient = value(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient)), "every parameter is trained"
    lower = jax.tree.map(lambda leaf, g: leaf - 1e-3 * g, params, gradient)
    assert value(lower)[0] < before


def test_steps_weigh_less_and_less(lesson):
    batch, config, _, params, frozen = lesson
    student = feature_head_student(config, steps=3, decay=0.5, chunk=64)
    loss, found = jax.jit(student.loss)(params, frozen, batch)
    means = found.loss / found.count
    np.testing.assert_allclose(loss, (means[0] + means[1] / 2 + means[2] / 4) / 1.75, rtol=1e-5)


def test_what_is_not_learned_does_not_count(lesson):
    batch, config, _, params, frozen = lesson
    student = feature_head_student(config, steps=2, chunk=16)
    nothing = batch._replace(learned=np.zeros_like(batch.learned))
    loss, found = jax.jit(student.loss)(params, frozen, nothing)
    assert loss == 0
    assert (found.count == 0).all()


# ---- draft models ----


def test_the_target_itself_is_always_accepted(lesson, tiny_target):
    batch = lesson[0]
    model = text_model_from_config(tiny_target.config, dtype=jnp.float32, layers="unrolled")
    student = draft_model_student(model, chunk=16)
    frozen = {"teacher_head": head_rows(tiny_target.params), "draft_place": jnp.arange(V, dtype=jnp.int32)}
    found = jax.jit(student.measure)(tiny_target.params, frozen, batch)
    assert int(found.count[0]) == int(batch.learned.sum())
    np.testing.assert_allclose(found.alpha / found.count, 1, atol=1e-5)
    np.testing.assert_allclose(found.loss / found.count, 0, atol=1e-5)
    assert total([found, found])["block_efficiency"] == pytest.approx(2, abs=1e-4)


def test_a_student_with_a_vocabulary_of_its_own(lesson, tiny_target):
    """What the teacher says of other tokens is never guessed."""
    batch, ids = lesson[0], np.array([0, 5, 9, 11, 20], np.int32)
    config, picked = from_layers(tiny_target, (0, 2))
    model = text_model_from_config(config, dtype=jnp.float32, layers="unrolled")
    student = draft_model_student(model, draft_ids=ids, chunk=16)
    found = jax.jit(student.measure)(picked, frozen_for_model(tiny_target.params, ids), batch)
    features, _ = jax.jit(model.features)(picked, batch.tokens, batch.positions, batch.segments)
    teacher = jax.nn.softmax(batch.features @ head_rows(tiny_target.params).T)[..., ids]
    mine = jax.nn.softmax(features @ head_rows(picked)[ids].T)
    want = jnp.where(batch.learned, jnp.minimum(teacher, mine).sum(-1), 0).sum()
    np.testing.assert_allclose(found.alpha[0], want, rtol=1e-4)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_the_losses_of_acceptance_are_those_of_all_tokens(kind, lesson, tiny_target):
    """Total variation is 1 - alpha, whatever a draft vocabulary leaves out."""
    batch, config, ids, params, frozen = lesson
    if kind == "head":
        student = feature_head_student(config, steps=2, loss="total_variation", chunk=64)
    else:
        shape, params = from_layers(tiny_target, (0, 2))
        model = text_model_from_config(shape, dtype=jnp.float32, layers="unrolled")
        student = draft_model_student(model, draft_ids=ids, loss="total_variation", chunk=64)
        frozen = frozen_for_model(tiny_target.params, ids)
    found = jax.jit(student.measure)(params, frozen, batch)
    np.testing.assert_allclose(found.loss, found.count - found.alpha, rtol=1e-4)
    unknown = 1 - jax.nn.softmax(batch.features @ head_rows(tiny_target.params).T)[..., ids].sum(-1)
    assert unknown.mean() > 0.1, "there is something to count"


@pytest.mark.parametrize("kind", ["head", "model"])
def test_alpha_is_of_all_places_whatever_is_learned_there(kind, lesson, tiny_target):
    """Cross-entropy learns nothing of tokens outside of a draft vocabulary; their guesses are refused all the same."""
    batch, config, ids, params, frozen = lesson
    shape, picked = from_layers(tiny_target, (0, 2))
    model = text_model_from_config(shape, dtype=jnp.float32, layers="unrolled")
    found = []
    for loss in ("cross_entropy", "forward_kl"):
        if kind == "head":
            student, given = feature_head_student(config, steps=1, loss=loss, chunk=64), (params, frozen)
        else:
            student = draft_model_student(model, draft_ids=ids, loss=loss, chunk=64)
            given = picked, frozen_for_model(tiny_target.params, ids)
        found.append(jax.jit(student.measure)(*given, batch))
    baseline, divergence = found
    np.testing.assert_array_equal(baseline.count, divergence.count)
    np.testing.assert_allclose(baseline.alpha, divergence.alpha, rtol=1e-5)
    assert np.isin(np.asarray(batch.tokens)[np.asarray(batch.learned)], ids).mean() < 0.9, "some are outside of it"


@pytest.mark.parametrize("layers", at_once(["stacked", "unrolled"], ["unrolled"]))
def test_a_student_of_some_layers(layers, tiny_target, samples, lesson):
    """It is the target with the other layers taken out, and learns."""
    batch = lesson[0]
    params = tiny_target.params
    if layers == "stacked":
        held = [params["layers"][i] for i in range(3)]
        params = {**params, "layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *held)}
    config, picked = from_layers(tiny_target._replace(params=params), (0, 2))
    assert config.num_layers == 2
    model = text_model_from_config(config, dtype=jnp.float32, layers=layers)
    student = draft_model_student(model, loss="total_variation", chunk=64)
    frozen = {"teacher_head": head_rows(tiny_target.params), "draft_place": jnp.arange(V, dtype=jnp.int32)}

    @jax.jit
    @jax.value_and_grad
    def value(params):
        return student.loss(params, frozen, batch)[0]

    loss, gradient = value(picked)
    assert 0 < loss < 1
    assert value(jax.tree.map(lambda leaf, g: leaf - 1e-2 * g, picked, gradient))[0] < loss


def test_layers_that_are_picked():
    assert evenly_spaced(1, 30) == (0,)
    assert evenly_spaced(2, 30) == (0, 29)
    assert evenly_spaced(4, 30) == (0, 10, 19, 29)
    assert low_middle_high(30) == (2, 15, 27)
    assert low_middle_high(1) == (0,)
    with pytest.raises(ValueError, match="a student of 4 layers of 3; expected 1 to 3"):
        evenly_spaced(4, 3)


def test_layers_that_are_not_there(tiny_target):
    with pytest.raises(ValueError, match=r"the layers are \[0, 3\]; expected some of 0 to 2"):
        from_layers(tiny_target, (0, 3))
    with pytest.raises(ValueError, match=r"the layers are \[\]"):
        from_layers(tiny_target, ())


def test_a_loss_that_is_none(lesson):
    with pytest.raises(ValueError, match=r"loss is 'kl'; expected one of forward_kl, .*, cross_entropy"):
        feature_head_student(lesson[1], loss="kl")


@pytest.mark.parametrize("kind", at_once(["head", "model"], ["head"]))
def test_in_bfloat16_all_products_are(kind, lesson, tiny_target):
    """And the loss and its gradient, which parameters in float32 get in float32, are about those of float32."""
    batch, config, ids, params, frozen = lesson
    shape, layers = from_layers(tiny_target, (0, 2))
    if kind == "model":
        params, frozen = layers, frozen_for_model(tiny_target.params, ids)

    def student(dtype):
        if kind == "head":
            return feature_head_student(config, steps=2, chunk=64, dtype=dtype)
        model = text_model_from_config(shape, dtype=dtype, layers="unrolled")
        return draft_model_student(model, draft_ids=ids, chunk=64, dtype=dtype)

    found = []
    for dtype in (jnp.bfloat16, jnp.float32):
        loss_of = partial(_mean_loss, student(dtype), frozen, batch)
        with jax.numpy_dtype_promotion("standard"):  # JAX's own attention adds float32 to bfloat16
            taken = products(jax.make_jaxpr(loss_of)(params).jaxpr)
            loss, gradient = jax.jit(jax.value_and_grad(loss_of))(params)
        assert len(taken) > 10
        assert {*taken} == {jnp.dtype(dtype)}
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((loss, gradient)))
        found.append((float(loss), np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])))
    (narrow, rough), (wide, fine) = found
    assert narrow != wide
    assert narrow == pytest.approx(wide, rel=0.05)
    assert rough @ fine / np.linalg.norm(rough) / np.linalg.norm(fine) > 0.98


def _mean_loss(student, frozen, batch, params):
    return student.loss(params, frozen, batch)[0]


def products(jaxpr) -> list[jnp.dtype]:
    """The number formats of both sides of every matrix product, in loops too."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found += [side.aval.dtype for side in equation.invars]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += products(inner)
    return found

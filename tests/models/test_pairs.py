"""A target and a draft with one tokenizer work whatever the padding of their logits; other pairs are refused."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from marks import at_once
from programs import quick
from small import fresh_params

import specdec_jax as sd
from specdec_jax import models
from specdec_jax.models import Loaded, Tokenizer
from specdec_jax.verify import RULES

TOKENS = 40


def shape(width: int) -> models.LlamaConfig:
    return models.LlamaConfig(
        vocab_size=width,
        width=16,
        mlp_width=24,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_size=8,
        max_positions=64,
    )


def tokenizer_of(tokens: list[str]) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=tokens[0])), eos_ids=())


WORDS = [f"w{i}" for i in range(TOKENS)]


def tiny(width: int, *, noise: float = 0.0, tokens: list[str] | None = WORDS) -> Loaded:
    """A model of so many logits, whose padding would win many a draw if it were not held down."""
    params = dict(fresh_params(shape(TOKENS)))
    rng = np.random.default_rng(0)
    for part in ("embedding", "head"):
        weight = np.asarray(params[part]["weight"])
        weight = 4 * weight * (1 + noise * rng.normal(size=weight.shape))
        padding = [(0, width - TOKENS if size == TOKENS else 0) for size in weight.shape]
        params[part] = {"weight": jnp.asarray(np.pad(weight, padding, constant_values=3), jnp.float32)}
    num_tokens = TOKENS if tokens is None else len(tokens)
    model = models.model_from_config(shape(width), dtype=jnp.float32, num_tokens=num_tokens)
    tokenizer = None if tokens is None else tokenizer_of(tokens)
    return Loaded(model, params, tokenizer, shape(width), lambda **_: model, f"model of {width}")


def answers(target: Loaded, draft: Loaded, rule: str) -> sd.Generation:
    draft = models.pair(target, draft)
    return generate(target.model, target.params, draft.model, draft.params, rule)


PROMPTS, LENGTHS, TEMPERATURE = np.random.default_rng(0).integers(0, TOKENS, (3, 5)), [5, 2, 3], 0.9


@functools.partial(quick, static_argnames=("target", "draft", "rule"))
def generate(target, params, draft, draft_params, rule):
    return sd.generate(
        target,
        params,
        None if draft is None else sd.draft_model(draft),
        draft_params,
        PROMPTS,
        LENGTHS,
        key=jax.random.key(3),
        sampling=sd.SamplingParams(temperature=0.0 if rule == "greedy" else TEMPERATURE),
        config=sd.GenerateConfig(capacity=32, draft_length=2, rule=rule),
        max_new_tokens=20,
        controller=sd.constant(),
    )


@pytest.mark.parametrize(
    ("rule", "widths"),
    [
        pytest.param(rule, widths, marks=[pytest.mark.heavy] * (rule != "block"))
        for rule, widths in zip(RULES, [(64, 48), (64, 48), (48, 64), (48, 64)], strict=True)
    ],
)
@pytest.mark.heavy
def test_padding_changes_nothing(rule, widths):
    """Neither the target's nor the draft's, be it more or less than the target's.

    Greedy and coupled tokens stay the same. The token and the block rule draw by groups that depend on the width, so
    what they draw stands for the same law: every token was drawn at the probability that it has without padding.
    """
    plain, noisy = tiny(TOKENS), tiny(TOKENS, noise=0.3)
    got = answers(tiny(widths[0]), tiny(widths[1], noise=0.3), rule)
    assert int(got.stats.accepted.sum()) > 0
    assert int(got.tokens.max()) < TOKENS
    if rule in ("greedy", "coupled"):
        want = answers(plain, noisy, rule)
        np.testing.assert_array_equal(got.tokens, want.tokens)
        np.testing.assert_array_equal(got.stats.accepted_at, want.stats.accepted_at)
        return
    drawn_as_alone(plain, got)


def drawn_as_alone(plain: Loaded, got: sd.Generation) -> None:
    """Every token has the log-probabilities that the target gives it when it reads the text for itself."""
    texts = np.zeros((3, 25), np.int32)
    for row, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        texts[row, : length + 20] = [*prompt[:length], *got.tokens[row, :20]]
    scores = np.asarray(logits(plain.model, plain.params, texts))
    for row, length in enumerate(LENGTHS):
        place = np.arange(20)
        after = scores[row, length - 1 + place]
        drawn = np.asarray(got.tokens[row, :20])
        for logprobs, temperature in ((got.logprobs.raw, 1.0), (got.logprobs.sampled, TEMPERATURE)):
            want = jax.nn.log_softmax(jnp.asarray(after / np.float32(temperature)))[place, drawn]
            np.testing.assert_allclose(logprobs[row, :20], want, rtol=1e-4, atol=1e-5)


@functools.partial(quick, static_argnames="model")
def logits(model, params, tokens):
    batch, length = tokens.shape
    return model.apply(params, tokens, model.init_cache(batch, length), jnp.zeros(batch, jnp.int32))[0]


@pytest.mark.parametrize("width", [40, 44, 52])
def test_logits_of_a_fitted_draft(width):
    target, draft = tiny(width), tiny(44, noise=0.3)
    fitted = models.pair(target, draft)
    before, after = (logits(one.model, one.params, jnp.asarray([[3, 1, 4]])) for one in (draft, fitted))
    assert after.shape == (1, 3, width)
    assert fitted.model.vocab_size == width
    np.testing.assert_array_equal(after[:, :, :TOKENS], before[:, :, :TOKENS])
    assert np.isneginf(after[:, :, TOKENS:]).all()
    assert models.pair(target, draft).model is fitted.model, "or it would compile anew"
    assert (fitted.model is draft.model) == (width == 44)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({7: "X"}, "token 7 is 'w7' to the target model of 44 but 'X' to the draft model of 48; expected the same"),
        ({7: "X", 3: "Y"}, "token 3 is 'w3' to the target model of 44 but 'Y' to"),
    ],
)
def test_the_first_token_that_differs_is_named(change, message):
    words = dict(enumerate(WORDS)) | change
    target, draft = tiny(44), tiny(48, tokens=list(words.values()))
    for check in (models.check_pair, models.pair):
        with pytest.raises(ValueError, match=message):
            check(target, draft)


MORE = [*WORDS, "more"]


@pytest.mark.parametrize("rule", at_once(RULES, ["coupled"]))
@pytest.mark.parametrize(
    "known", [range(TOKENS), pytest.param(range(0, TOKENS, 2), marks=pytest.mark.heavy)], ids=["whole", "narrowed"]
)
def test_a_target_that_knows_a_token_more(rule, known):
    """It comes out as often as the target alone would say it, and the draft goes on after it."""
    target, draft = tiny(44, tokens=MORE), tiny(TOKENS, noise=0.3)
    if len(known) < TOKENS:
        draft = models.narrowed(draft, np.array(known))
    got = answers(target, draft, rule)
    assert int(got.stats.accepted.sum()) > 0
    assert (got.tokens == TOKENS).any()
    if rule in ("greedy", "coupled"):
        want = generate(target.model, target.params, None, None, rule)
        np.testing.assert_array_equal(got.tokens, want.tokens)
    else:
        drawn_as_alone(target, got)


@pytest.mark.parametrize("width", [TOKENS, 44])
def test_a_draft_that_knows_a_token_more(width):
    """It never guesses it, though it would like to."""
    draft = tiny(44, tokens=MORE)
    fitted = models.pair(tiny(width), draft)
    before, after = (logits(one.model, one.params, jnp.asarray([[3, 1, 4]])) for one in (draft, fitted))
    assert np.isfinite(before[:, :, TOKENS]).all()
    assert np.isneginf(after[:, :, TOKENS:]).all()
    np.testing.assert_array_equal(after[:, :, :TOKENS], before[:, :, :TOKENS])


def test_a_hole_in_either_vocabulary():
    words = {word: i for i, word in enumerate(WORDS) if i != 7}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=WORDS[0]))
    whole = tiny(44)
    holed = whole._replace(tokenizer=Tokenizer(backend, eos_ids=()))
    models.check_pair(whole, holed)
    fitted = models.pair(holed, whole)
    scores = logits(fitted.model, fitted.params, jnp.asarray([[3, 1, 4]]))[0, 0]
    assert np.flatnonzero(np.isneginf(scores)).tolist() == [7, *range(TOKENS, 44)]


def test_another_vocabulary_is_refused_before_weights_are_read(monkeypatch, tmp_path):
    draft = tiny(TOKENS, tokens=["X", *WORDS[1:]])
    models.save(tmp_path / "draft", draft.config, draft.params, tokenizer=draft.tokenizer)
    monkeypatch.setattr(
        importlib.import_module("specdec_jax.models.load"),
        "assemble",
        lambda *_, **how: pytest.fail("read its weights"),
    )
    with pytest.raises(ValueError, match="token 0 is 'w0' to the target"):
        models.load_draft(tmp_path / "draft", tiny(TOKENS))


def test_vocabularies_that_share_nothing():
    """Nothing could be drafted."""
    halves = [{word: i for i, word in enumerate(WORDS) if i % 2 == odd} for odd in (0, 1)]
    target, draft = (
        tiny(44)._replace(
            tokenizer=Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel(half, unk_token="w0")), eos_ids=())
        )
        for half in halves
    )
    with pytest.raises(ValueError, match="and the draft model of 44 share no token; expected the same vocabulary"):
        models.pair(target, draft)


def test_tokens_past_the_logits_are_not_compared():
    """Gemma 3's smallest model has one in its tokenizer, and its GGUF file has not."""
    past = tiny(TOKENS)._replace(tokenizer=tokenizer_of(MORE))
    for other in (tiny(TOKENS), tiny(44, tokens=[*WORDS, "X"])):
        models.check_pair(past, other)
        models.check_pair(other, past)


def test_the_draft_reads_no_id_past_its_own():
    """What a model makes of one is up to it, and may be NaN."""
    read = []

    def apply(params, tokens, cache, lengths):
        read.append(np.asarray(tokens))
        return jnp.zeros((*tokens.shape, TOKENS)), None, cache

    draft = tiny(TOKENS)._replace(model=sd.LanguageModel(lambda *_: None, apply, TOKENS))
    fitted = models.pair(tiny(44, tokens=MORE), draft)
    fitted.model.apply(None, jnp.asarray([[3, TOKENS]]), None, jnp.zeros(1, jnp.int32))
    np.testing.assert_array_equal(read, [[[3, TOKENS - 1]]])


def test_spaces_are_spelt_in_two_ways():
    """GGUF and Hugging Face files of one model differ there."""
    target = tiny(44, tokens=["\u2581\u2581", *WORDS[1:]])
    models.check_pair(target, tiny(44, tokens=["  ", *WORDS[1:]]))


@pytest.mark.parametrize(("ours", "theirs"), [(None, WORDS), (WORDS, None), (None, None)])
def test_without_a_tokenizer_the_widths_decide(ours, theirs):
    target = tiny(44, tokens=ours)
    models.check_pair(target, tiny(44, tokens=theirs))
    with pytest.raises(ValueError, match=r"logits of the target model of 44 are 44 wide and those of the draft .* 48"):
        models.check_pair(target, tiny(48, tokens=theirs))


@pytest.mark.heavy
def test_a_narrowed_draft_never_guesses_padding():
    draft = models.narrowed(tiny(48), np.array([1, 3, 41, 47]))
    fit = models.pair(tiny(48), draft)
    logits, _, _ = fit.model.apply(
        fit.params, jnp.ones((1, 2), jnp.int32), fit.model.init_cache(1, 8), jnp.zeros(1, jnp.int32)
    )
    assert np.flatnonzero(np.isfinite(logits[0, 0])).tolist() == [1, 3]
    with pytest.raises(ValueError, match="no id of the draft vocabulary is a token of model of 48; expected one"):
        models.narrowed(tiny(48), np.array([41, 47]))

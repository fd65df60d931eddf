"""A tokenizer, and what lies beside it, may be anything: it is refused at once."""

import json

import pytest
from test_hostile_directories import SOUND, edit

from specdec_jax import models
from specdec_jax.models import LoadError

TOKENIZERS = {
    "garbage": "not JSON at all",
    "a nest": "[" * 100_000,
    "a nest of objects": '{"model":' * 100_000,
    "a list": "[]",
    "an unknown model": '{"model": {"type": "Magic"}}',
    "an id": '{"model": {"type": "WordLevel", "vocab": {"a": 4294967296}, "unk_token": "a"}}',
    "a negative id": '{"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}}',
    "a merge that makes no token": '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}',
    "a map of characters": '{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "model": '
    '{"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}',
    "a merge of nothing": '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}',
}


@pytest.mark.parametrize("text", TOKENIZERS.values(), ids=TOKENIZERS)
def test_tokenizers(text, folder):
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(LoadError, match=r"cannot read .*tokenizer.json as a tokenizer .*; download it again"):
        models.load(folder)


@pytest.mark.parametrize(
    "tokenizer",
    [
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}},
        {
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {},
            },
        },
    ],
    ids=["no unknown token", "a special token that is none"],
)
def test_a_tokenizer_that_fails_at_a_text(tokenizer, folder):
    """Even where the library behind it panics: that is no Exception."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(LoadError, match=r"(fails at a text|cannot read) .*download it again"):
        models.load(folder)


@pytest.mark.parametrize("kind", ["WordPiece", "WordLevel"])
def test_a_vocabulary_without_its_unknown_token(kind, folder):
    model = {"type": kind, "vocab": {"a": 0}, "unk_token": "[UNK]"}
    more = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100} if kind == "WordPiece" else {}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model | more}))
    with pytest.raises(LoadError, match=r"lacks its unknown token, '\[UNK\]', without which"):
        models.load(folder)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"eos_token_id": "2"}, "eos_token_id of .*config.json has '2'; expected a token id or a list"),
        ("config.json", {"bos_token_id": -1}, "bos_token_id of .*config.json has -1; expected a token id or a list"),
        ("generation_config.json", {"eos_token_id": [2, 2**40]}, "generation_config.json has 1099511627776; expected"),
        ("tokenizer_config.json", {"eos_token": 7}, "eos_token in .*tokenizer_config.json is 7; expected a text"),
        (
            "special_tokens_map.json",
            {"eos_token": [7]},
            r"eos_token in .*special_tokens_map.json is \[7\]; expected a t",
        ),
        ("tokenizer_config.json", {"chat_template": 7}, "chat_template in .* is a int; expected a text, or a list"),
        ("tokenizer_config.json", {"chat_template": [7]}, "makes no sense .TypeError"),
        ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}, "makes no sense .KeyError"),
        ("tokenizer_config.json", {"chat_template": "{% for %}"}, "the chat template does not parse, at its line 1"),
        ("tokenizer_config.json", {"chat_template": "{{" + "(" * 9999}, "makes no sense"),
    ],
)
def test_what_lies_beside_a_tokenizer(file, changes, message, folder):
    (folder / "tokenizer.json").write_text(SOUND)
    if not (folder / file).exists():
        (folder / file).write_text("{}")
    edit(folder / file, **changes)
    with pytest.raises(LoadError, match=message):
        models.load(folder)


def test_an_id_that_would_fill_the_memory(folder):
    """A list of all ids is as long as the largest, so the largest is held against the logits first."""
    vocabulary = '{"model": {"type": "WordLevel", "vocab": {"a": 4294967295}, "unk_token": "a"}}'
    (folder / "tokenizer.json").write_text(vocabulary)
    with pytest.raises(LoadError, match=r"has 4294967296 tokens, but its logits are 97 wide"):
        models.load(folder)
